"""What a new solver needs beside its file and its line in the register; each failure says what is missing where."""

from pathlib import Path

import pytest

from experiments.config import ProblemConf
from solvers.kinds import KINDS
from solvers.planner import SOLVERS, solver_names
from tests.contract import contract_of

ROOT = Path(__file__).resolve().parents[2]
CHOICES = ROOT / "conf" / "solver"


def readme_of(name: str) -> Path:
    """The README of the room, or of the part of it, that the solver lives in."""
    folder = ROOT.joinpath(*SOLVERS[name].target.partition(":")[0].split("."))
    return next(parent / "README.md" for parent in (folder, *folder.parents) if (parent / "README.md").is_file())


@pytest.mark.parametrize("name", SOLVERS)
def test_the_readme_of_its_room_has_a_row_for_it(name: str) -> None:
    rows = [line for line in readme_of(name).read_text().splitlines() if line.startswith("|")]
    place = readme_of(name).relative_to(ROOT)
    assert any(f"`{name}`" in row for row in rows), f"{place} has no table row with `{name}`: add one"


def test_experiments_can_choose_exactly_the_solvers_of_the_kind_that_they_execute() -> None:
    for name in solver_names(ProblemConf.kind):
        text = f"# @package solver.{name}\ndefaults:\n  - /schema/solver@_here_: {name}\n"
        path = CHOICES / f"{name}.yaml"
        assert path.is_file() and path.read_text() == text, f"conf/solver/{name}.yaml should read:\n{text}"
    strangers = {path.stem for path in CHOICES.glob("*.yaml")} - set(solver_names(ProblemConf.kind))
    assert not strangers, f"conf/solver has files of no registered solver: {', '.join(sorted(strangers))}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_solvers_and_is_solved_by_brute_force(kind: str) -> None:
    assert solver_names(kind), f"SOLVERS of solvers/planner.py has no solver of {kind}: register one"
    assert kind == contract_of(kind).tiny(0).KIND
