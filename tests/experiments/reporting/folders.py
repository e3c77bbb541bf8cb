"""Folders of runs, made of kept results and of a problem small enough to do by hand: seconds of training less."""

import json
import shutil
from pathlib import Path

import msgspec

from experiments.grid import DONE
from experiments.kinds import CLUSTER, ELASTIC, LAYOUT, PIPELINE, RANKS, RECOMPUTE, STABILITY, TRAINING
from experiments.run_directory import CONFIG, ROWS, SWEEP
from experiments.sweeping.record import FORMAT
from solvers.ir import Limits, Report
from solvers.ir.codec import document_to_raw, plan_file, plan_to_raw, problem_sha256, problem_to_raw, write_json
from solvers.planner import simulate_plan
from solvers.swap.greedy import GreedySwap
from tests.experiments.commands.console import ROOT, tiny_problem

RESULTS = ROOT / "experiments" / "results"
KEPT = {
    "demo": TRAINING, "lynx": PIPELINE, "ft_32": CLUSTER, "ft_month": CLUSTER, "stability": STABILITY, "ranks": RANKS,
    "lynx_tp2": RECOMPUTE, "elastic": ELASTIC, "protrain": LAYOUT,
}  # fmt: skip
"""Kept rows of single runs, and their kinds."""
NAME = "greedy-swap"


def kept_run(folder: Path, name: str) -> Path:
    """A folder with the kept rows of a run and settings that say its kind."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(RESULTS / name / ROWS, folder / ROWS)
    (folder / CONFIG).write_text(f"kind: {KEPT[name]}\nname: {name}\npaper: {{oobleck: 1.229}}\n")
    return folder


def kept_sweep(folder: Path) -> Path:
    """The kept rows of the demo's sweep, as a sweep leaves them; cells have no folders of their own any more."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(RESULTS / "demo_sweep" / ROWS, folder / ROWS)
    axes = ["problem.budget_fraction", "hardware.link_gb_per_s"]
    write_record(folder, TRAINING, [f"cells/{number}" for number in range(28)], axes)
    return folder


def write_record(folder: Path, kind: str, cells: list[str], axes: list[str]) -> None:
    """What a sweep writes of its cells."""
    record = {"format": FORMAT, "kind": kind, "arguments": ["a=1,2"], "cells": cells, "axes": axes}
    (folder / SWEEP).write_text(json.dumps(record))


def write_cell(folder: Path, rows: str, overrides: str) -> None:
    """A cell that ended: its rows, their mark, and what it was asked."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text(overrides)
    (folder / ROWS).write_text(rows)
    (folder / DONE).write_text(json.dumps({"rows": rows.count("\n"), "sha256": ""}))


def planned_run(folder: Path) -> Path:
    """The kept demo, with a plan of the tiny problem, its simulated step, and an executed one that took longer."""
    kept_run(folder, "demo")
    problem = tiny_problem()
    rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
    for row in rows:
        row["figures"]["budget_bytes"] = problem.budget_bytes
    (folder / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    solution = GreedySwap().solve(problem, Limits(threads=1))
    assert solution.plan is not None
    (folder / "plans").mkdir()
    (folder / "reports").mkdir()
    write_json(folder / "problem.json", problem_to_raw(problem))
    file = plan_file(solution, problem.KIND, problem_sha256(problem))
    write_json(folder / "plans" / f"{NAME}.json", plan_to_raw(file))
    planned, _ = simulate_plan(problem, solution.plan)
    write_json(folder / "reports" / f"{NAME}.simulated.json", document_to_raw(planned))
    write_json(folder / "reports" / f"{NAME}.executed.json", document_to_raw(longer(planned)))
    return folder


def longer(planned: Report) -> Report:
    """The same step with 7.25 µs of launches at its end."""
    later = 7.25
    return msgspec.structs.replace(
        planned, how="executed", source="a device", makespan_us=planned.makespan_us + later, launch_us=later
    )
