"""`make bench` on something small: every figure is there, and says how it was obtained."""

import contextlib
import io
import json
from pathlib import Path

import pytest

from experiments.bench import bench, record_figures, solver_figures
from experiments.cli import run
from tests.experiments.commands.console import Outcome, refused, write_problem


def _bench(*arguments: object) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(bench, "bench", [str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def test_solver_figures_agree_with_the_problem_worked_out_by_hand(tmp_path: Path) -> None:
    figures = {figure.name: figure for figure in solver_figures(write_problem(tmp_path / "p.json"), 5.0, 1)}
    assert figures["milp-swap, step time"].value == 80
    assert figures["milp-swap, step time"].ratio == pytest.approx(80 / 60)
    assert figures["milp-swap, gap"].value == 0
    assert figures["milp-swap, overhead gap"].value == 0
    assert figures["greedy overhead"].value == 20
    assert figures["greedy overhead"].ratio == 1
    assert all(figure.how for figure in figures.values())


def test_record_figures_count_operators_and_compare_with_a_plain_step() -> None:
    figures = {figure.name: figure for figure in record_figures(rounds=3)}
    assert set(figures) == {f"{name}, per operator" for name in ("plain step", "light", "detailed", "guard")}
    assert all(figure.value is not None and figure.how for figure in figures.values())
    plain, detailed = figures["plain step, per operator"], figures["detailed, per operator"]
    assert plain.value is not None
    assert detailed.value is not None
    assert detailed.ratio == pytest.approx(1 + detailed.value / plain.value)


def test_without_the_extension_the_section_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.native.why_missing", lambda name: f"{name} is not built: run `make build`")
    outcome = _bench("--only", "records")
    assert outcome.code == 0
    lines = [line for line in outcome.out.splitlines() if "per operator" in line]
    assert len(lines) == 3
    assert all("not measured" in line and "runtime._C is not built" in line for line in lines)


def test_the_file_holds_what_the_table_shows_and_nothing_that_names_the_machine(tmp_path: Path) -> None:
    problem, out = write_problem(tmp_path / "p.json"), tmp_path / "bench.json"
    outcome = _bench("--only", "solvers", "--instance", problem, "--time-limit", "5", "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    raw = json.loads(out.read_text())
    assert set(raw["machine"]) == {"processor", "cores", "python", "torch"}
    for figure in raw["figures"]:
        assert figure["name"] in outcome.out
        assert figure["how"] in outcome.out


def test_bad_input(tmp_path: Path) -> None:
    problem = write_problem(tmp_path / "p.json")
    assert "is not one of" in refused(_bench("--only", "everything"))
    assert "there is no flag '--jsn': did you mean '--json'?" in refused(_bench("--jsn", "x"))
    assert "would write over the input" in refused(_bench("--instance", problem, "--json", problem))
    assert "cannot read" in refused(_bench("--instance", tmp_path / "none.json"))
