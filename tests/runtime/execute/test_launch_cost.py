"""Launch-bound programs: what the planner predicts is what the executor does, and the breakdown adds up."""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest
import torch

from experiments.bench.prediction import Compared, compare_program
from experiments.bench.programs import mlp, programs, regression, resnet, tied_gpt
from experiments.hardware import read_hardware
from experiments.models import GptShape, Workload
from runtime.device import use_sim
from runtime.profile import profile_step
from solvers.ir import Limits, OpGraph
from solvers.ir.hardware import Hardware
from solvers.planner import build_solver
from solvers.swap import lower, make_swap_problem
from solvers.swap.evaluate import instance, least_budget
from solvers.timeline import simulate

HARDWARE = read_hardware("sim-small")
PROGRAMS: dict[str, Callable[[torch.device], Workload]] = {
    "MLP": mlp,
    "MLP, tiny": partial(regression, width=64, depth=4, rows=128),
    "ResNet": resnet,
    "tied GPT": tied_gpt,
    "GPT of short transfers": GptShape(layers=2, width=32, heads=2, context=64, batch=16, dropout=0.0).build,
}
MOST = 0.02
"""What issue and README promise; what is measured is a tenth of it."""


def profiled(build: Callable[[torch.device], Workload], hardware: Hardware = HARDWARE) -> OpGraph:
    sim = use_sim(hardware)
    workload = build(sim.device)
    return profile_step(workload.step, sim.device, model=workload.model, optimizer=workload.optimizer)


@pytest.mark.parametrize("name", PROGRAMS)
def test_predicted_is_executed(name: str) -> None:
    compared = list(compare_program(PROGRAMS[name], HARDWARE, shares=(0.1, 0.6)))
    assert len(compared) == 6
    followed = [one for one in compared if one.as_planned]
    assert len(followed) >= 5
    for one in followed:
        assert abs(one.deviation) <= MOST, one
        assert one.executed.makespan_us > one.executed.base_us, one  # type: ignore[operator]
        _adds_up(one)


def _adds_up(one: Compared) -> None:
    """Step = base + stalls + launches on both sides, and each part is the other side's part."""
    for report in (one.predicted, one.executed):
        assert report.base_us is not None
        assert report.launch_us is not None
        parts = report.base_us + sum(report.stall_us.values()) + report.launch_us
        assert report.makespan_us == pytest.approx(parts, abs=1e-6)
    assert one.predicted.base_us == pytest.approx(one.executed.base_us, abs=2)
    within = pytest.approx(one.executed.launch_us, abs=0.01 * one.executed.makespan_us)
    assert one.predicted.launch_us == within
    for cause, stall in one.predicted.stall_us.items():
        assert stall == pytest.approx(one.executed.stall_us[cause], abs=0.01 * one.executed.makespan_us), cause


def test_transformers_gpt2_too() -> None:
    pytest.importorskip("transformers")
    for one in compare_program(programs()["GPT-2 of transformers"], HARDWARE, shares=(0.5,)):
        assert one.as_planned
        assert abs(one.deviation) <= MOST


def test_without_launches_the_same_plans_are_foretold_wrong() -> None:
    """What the issue found: 763 µs predicted, 608 executed. So it is launches that the test above tests."""
    graph = profiled(mlp)
    known = make_swap_problem(graph, HARDWARE, int(0.7 * max(graph.memory_bytes)))
    bare = msgspec.structs.replace(
        graph, ops=tuple(msgspec.structs.replace(op, launch=msgspec.UNSET) for op in graph.ops)
    )
    unknown = make_swap_problem(bare, HARDWARE, known.budget_bytes)
    assert (unknown.has_launches, unknown.launch_us, unknown.link.latency_ns) == (False, 0, None)
    plan = build_solver("greedy-swap", {}).solve(known, Limits()).plan
    assert plan is not None
    right, wrong = (simulate(problem, lower(problem, plan)).makespan_us for problem in (known, unknown))
    assert wrong > 1.1 * right


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_base_is_the_profiled_step(name: str) -> None:
    graph = profiled(PROGRAMS[name])
    problem = make_swap_problem(graph, HARDWARE)
    assert problem.has_launches
    assert instance(problem).whole_us(instance(problem).base) == pytest.approx(
        sum(op.time_us for op in graph.ops), abs=2
    )
    assert least_budget(problem) <= max(graph.memory_bytes)
