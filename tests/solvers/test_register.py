"""What a new solver needs beside its file and its line in the register; each failure says what is missing where."""

from pathlib import Path

import pytest

from experiments.compose import read_settings
from experiments.config import ProblemConf
from solvers.kinds import KINDS
from solvers.planner import SOLVERS, solver_names
from tests.contract import contract_of

ROOT = Path(__file__).resolve().parents[2]


def readme_of(name: str) -> Path:
    """The README of the room, or of the part of it, that the solver lives in."""
    folder = ROOT.joinpath(*SOLVERS[name].target.partition(":")[0].split("."))
    return next(parent / "README.md" for parent in (folder, *folder.parents) if (parent / "README.md").is_file())


@pytest.mark.parametrize("name", SOLVERS)
def test_the_readme_of_its_room_has_a_row_for_it(name: str) -> None:
    rows = [line for line in readme_of(name).read_text().splitlines() if line.startswith("|")]
    place = readme_of(name).relative_to(ROOT)
    assert any(f"`{name}`" in row for row in rows), f"{place} has no table row with `{name}`: add one"


@pytest.mark.parametrize("name", solver_names(ProblemConf.kind))
def test_experiments_can_choose_the_solvers_of_the_kind_that_they_execute(name: str) -> None:
    """By its line in the register alone, with the parameters that its class has."""
    (chosen,) = read_settings([f"solver={name}"]).settings.solver.values()
    assert type(chosen).__name__ == f"{SOLVERS[name].target.partition(':')[2]}Conf"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_solvers_and_is_solved_by_brute_force(kind: str) -> None:
    assert solver_names(kind), f"SOLVERS of solvers/planner.py has no solver of {kind}: register one"
    assert kind == contract_of(kind).tiny(0).KIND
