"""`bayplan make joint`, and what the other commands do with what it makes."""

import json
from pathlib import Path

from tests.experiments.commands.console import call, refused

CUT = ("--shape", "llama-2-7b", "--layers", 2, "--hardware", "a100-sxm-80", "--microbatch", 1)


def test_from_a_shape_to_a_checked_and_simulated_plan(tmp_path: Path) -> None:
    problem, plan = tmp_path / "p.json", tmp_path / "plan.json"
    made = call("make", "joint", *CUT, "--budget", "95%", "--host-budget", "8GiB", "--out", problem)
    assert made.code == 0, made
    assert json.loads(problem.read_text())["host_budget_bytes"] == 8 << 30
    solved = call("solve", problem, "--solver", "greedy-joint", "--out", plan)
    assert solved.code == 0, solved
    assert call("check", problem, plan).code == 0
    shown = call("simulate", problem, plan, "--trace", tmp_path / "t.json")
    assert shown.code == 0, shown
    assert "recompute" in shown.out and (tmp_path / "t.json").is_file()


def test_what_means_nothing_is_refused(tmp_path: Path) -> None:
    said = refused(call("make", "joint", *CUT, "--host-rounding", "exact", "--out", tmp_path / "p.json"))
    assert "--host-rounding" in said and not (tmp_path / "p.json").exists()
