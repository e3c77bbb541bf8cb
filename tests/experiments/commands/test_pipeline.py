"""Whole steps on the command line: made from a shape, solved, checked, simulated, as text and as JSON."""

import json
from pathlib import Path

import pytest

from tests.experiments.commands.console import call, refused

SHAPE = ("--shape", "gpt-7b", "--hardware", "lynx-nvlink", "--tensor", 4, "--pipeline", 4, "--microbatch", 32)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pipeline") / "p.json"
    told = call("make", "pipeline", *SHAPE, "--microbatches", 8, "--out", place)
    assert (told.code, told.err) == (0, "")
    assert "budget of a stage" in told.out
    return place


@pytest.mark.parametrize("solver", ["lynx", "bayplan", "full-step"])
def test_a_step_is_solved_checked_and_simulated(made: Path, tmp_path: Path, solver: str) -> None:
    plan, trace = tmp_path / "plan.json", tmp_path / "trace.json"
    solved = call("solve", made, "--solver", solver, "--out", plan, "--json")
    assert (solved.code, solved.err) == (0, "")
    objective = json.loads(solved.out)["objective_us"]
    checked = call("check", made, plan)
    assert (checked.code, "no violations" in checked.out) == (0, True)
    told = json.loads(call("simulate", made, plan, "--json").out)
    assert told["makespan_us"] == objective
    assert set(told["stall_us"]) == {f"bubble of stage {stage}" for stage in range(4)}
    shown = call("simulate", made, plan, "--trace", trace)
    assert (shown.code, "hidden in stalls" in shown.out) == (0, True)
    lanes = {event.get("args", {}).get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"0.compute", "1.comm", "2.in", "1.out"} <= lanes


def test_a_false_step_time_is_found(made: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    call("solve", made, "--solver", "lynx", "--out", plan)
    raw = json.loads(plan.read_text())
    raw["objective_us"] -= 1
    plan.write_text(json.dumps(raw))
    checked = call("check", made, plan)
    assert checked.code == 1 and "but the decision takes" in checked.out


def test_too_little_memory_is_an_answer_with_the_least_budget(tmp_path: Path) -> None:
    problem, plan = tmp_path / "p.json", tmp_path / "plan.json"
    assert call("make", "pipeline", *SHAPE, "--budget", "4GiB", "--out", problem).code == 0
    solved = call("solve", problem, "--solver", "bayplan", "--out", plan, "--json")
    told = json.loads(solved.out)
    assert (solved.code, told["status"]) == (1, "infeasible")
    assert f"exactly {told['least_budget_bytes']} bytes" in told["reason"]
    enough = tmp_path / "enough.json"
    assert call("make", "pipeline", *SHAPE, "--budget", told["least_budget_bytes"], "--out", enough).code == 0
    assert call("solve", enough, "--solver", "bayplan").code == 0


def test_what_means_nothing_is_refused(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "p.json")
    assert "choice for --order" in refused(call("make", "pipeline", *SHAPE, "--order", "2f2b", *out))
    assert "means nothing to a pipeline" in refused(call("make", "pipeline", *SHAPE, "--stage", 1, *out))
    assert "--order means something to pipeline problems only" in refused(
        call("make", "swap", *SHAPE, "--order", "gpipe", *out)
    )
