"""Partition problems on the command line: solved, checked, and refused with the right exit code."""

from pathlib import Path

import pytest

from solvers.ir.codec import problem_to_raw, write_json
from solvers.partition import partition_problem
from tests.experiments.commands.console import call, refused

STORY = [[None, 10, 20, 33, None], [None, 12, 24, None, None]]


def written(folder: Path, rows: list[list[int | None]]) -> Path:
    place = folder / "problem.json"
    write_json(place, problem_to_raw(partition_problem("two stages", rows)))
    return place


@pytest.mark.parametrize("solver", ["dp", "greedy-lynx", "balanced"])
def test_a_partition_is_solved_and_checked(tmp_path: Path, solver: str) -> None:
    problem, plan = written(tmp_path, STORY), tmp_path / "plan.json"
    solved = call("solve", problem, "--solver", solver, "--out", plan)
    assert (solved.code, solved.err) == (0, "")
    assert "24 µs" in solved.out
    checked = call("check", problem, plan)
    assert (checked.code, "no violations" in checked.out) == (0, True)


@pytest.mark.parametrize("solver", ["dp", "greedy-lynx", "balanced"])
@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([[None, 1, 2]] * 3, "2 layers cannot fill 3 stages with one each"),
        ([[None, 1, 2, 3], [None] * 4], "none of 1…2 layers fits stage 1: cost_us[1] is null there"),
        ([[None, 1, None, None, None]] * 3, "the stages fit at most 3 layers together, of 4"),
    ],
)
def test_no_partition_is_an_answer_with_its_reason_and_exit_code_1(
    tmp_path: Path, solver: str, rows: list[list[int | None]], reason: str
) -> None:
    problem, plan = written(tmp_path, rows), tmp_path / "plan.json"
    solved = call("solve", problem, "--solver", solver, "--out", plan)
    assert (solved.code, solved.err) == (1, "")
    assert "infeasible" in solved.out
    assert reason in " ".join(solved.out.split())
    checked = call("check", problem, plan)
    assert (checked.code, checked.out.count("violation:")) == (1, 1)
    assert "there is no decision to judge" in checked.out


def test_partitions_have_no_timeline(tmp_path: Path) -> None:
    problem, plan = written(tmp_path, STORY), tmp_path / "plan.json"
    call("solve", problem, "--solver", "dp", "--out", plan)
    assert "partition problems cannot be turned into a schedule" in refused(call("simulate", problem, plan))
