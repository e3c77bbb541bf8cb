"""The README's figures are drawn again, and the shipped instance answers as the README says."""

import re
from pathlib import Path
from typing import Any

import pytest

import solvers.partition
from experiments import __file__ as experiments
from solvers.ir import Limits, PartitionProblem
from solvers.ir.codec import read_problem
from solvers.partition import Balanced, Dp, GreedyLynx
from solvers.partition.fastest import exact_step
from solvers.partition.instances import random_stage_times
from solvers.partition.losses import LossFigures, figures, step_losses
from solvers.partition.stage_times import makespans_us

README = Path(solvers.partition.__file__).with_name("README.md").read_text(encoding="utf-8")
INSTANCE = Path(experiments).with_name("instances") / "partition-8s-32l.json"


BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_a_whole_step_is_solved_and_lowered_as_the_readme_says_and_is_shipped() -> None:
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[0], "README.md", "exec"), names)
    assert read_problem(INSTANCE.with_name("pipeline-gpt13b-4s.json"))[0] == names["problem"]


def cell(told: LossFigures) -> str:
    return f"{told.mean_percent:.2f}, {told.max_percent:.2f}"


def test_the_table_of_largest_costs(capsys: pytest.CaptureFixture[str]) -> None:
    block = BLOCKS[1]
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)
    assert capsys.readouterr().out.count("LossFigures(instances=2000") == 2
    rows, best = names["rows"], names["best"]
    found = {"greedy-lynx": [row.greedy_us for row in rows], "balanced": [row.balanced_us for row in rows]}
    for name, values in found.items():
        told = figures(values, best)
        row = f"| `{name}` | {told.optimal:,} | {told.stuck} | {told.mean_percent:.2f} | {told.p95_percent:.2f} |"
        assert f"{row} {told.max_percent:.2f} |" in README


@pytest.mark.parametrize(("stages", "layers", "microbatches"), [(4, 24, 8), (4, 24, 32), (8, 32, 16), (8, 32, 64)])
def test_the_table_of_steps(stages: int, layers: int, microbatches: int) -> None:
    rows = step_losses(range(40), stages, layers, microbatches)
    assert len(rows) == 40
    assert all(row.exact for row in rows)
    best = [row.fastest_us for row in rows]
    dp = cell(figures([row.dp_us for row in rows], best))
    greedy = cell(figures([row.greedy_us for row in rows], best))
    balanced = cell(figures([row.balanced_us for row in rows], best))
    assert re.search(
        rf"^\| {stages}, {layers}, {microbatches} \| {dp} \| [^|]* \| {greedy} \| {balanced} \|$", README, re.MULTILINE
    )


def test_the_shipped_instance() -> None:
    problem, _ = read_problem(INSTANCE)
    assert isinstance(problem, PartitionProblem)
    answers = [solver.solve(problem, Limits()) for solver in (Dp(), GreedyLynx(), Balanced())]
    assert [answer.objective for answer in answers] == [15_000, 15_210, 15_941]
    plans = [answer.plan.layers for answer in answers if answer.plan is not None]
    times = random_stage_times(73, 8, 32)
    assert makespans_us(times, plans, 32).tolist() == [555_257, 557_927, 595_487]
    assert exact_step(times, 32).makespan_us == 555_257
