"""Predicted against executed steps: every shipped model and some that nothing was tuned for, by budgets and solvers."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from experiments.bench.figure import Figure
from experiments.bench.programs import programs
from experiments.compose import read_settings
from experiments.hardware import read_hardware
from experiments.models import Workload
from experiments.outcomes import make_model
from runtime.device import use_sim
from runtime.device.native import why_missing
from runtime.profile import profile_step
from runtime.swap import SwapExecutor
from solvers.ir import Hardware, Limits, OpGraph, Report, SwapProblem
from solvers.planner import build_solver
from solvers.swap import lower, make_swap_problem
from solvers.swap.evaluate import least_budget
from solvers.timeline import simulate

SHIPPED = {"gpt-micro": "sim-tiny", "gpt-tiny": "sim-tiny", "gpt": "sim-small"}
"""The shipped models, each on the hardware that keeps its kernels longer than launches."""
UNSEEN = "sim-small"
SOLVERS = ("greedy-swap", "capuchin-swap", "milp-swap")
SHARES = (0.0, 0.25, 0.5, 0.9)
"""Budgets, from the least one (0) to the peak (1)."""
STEPS = 2
LIMITS = Limits(time_s=20.0, work=0.1)
Program = tuple[Callable[[torch.device], Workload], Hardware]


@dataclass(frozen=True)
class Compared:
    """One plan: the step that it predicts, and the last one that was executed."""

    solver: str
    share: float
    predicted: Report
    executed: Report
    as_planned: bool

    @property
    def deviation(self) -> float:
        """(executed − predicted) / executed."""
        return 1 - self.predicted.makespan_us / self.executed.makespan_us


def prediction_figures() -> list[Figure]:
    """For each program the plan that was predicted worst, and of all plans the best, the worst and the middle."""
    missing = why_missing("runtime._C") or why_missing("runtime._sim")
    if missing is not None:
        return [Figure("predicted against executed", None, "%", None, "", missing)]
    figures, found = [], []
    for name, program in all_programs().items():
        compared = list(compare_program(*program))
        found += compared
        figures.append(_program_figure(name, program[1], compared))
    deviations = sorted(abs(one.deviation) for one in found)
    for which, place in (("best", 0), ("median", len(deviations) // 2), ("worst", -1)):
        how = f"|executed - predicted| / executed, of {len(deviations)} plans"
        figures.append(Figure(f"all plans, {which}", 100 * deviations[place], "%", None, "", how))
    return figures


def all_programs() -> dict[str, Program]:
    """Every shipped model on its hardware, and the unseen programs."""
    shipped: dict[str, Program] = {
        name: (make_model(read_settings([f"model={name}"]).settings.model).build, read_hardware(hardware))
        for name, hardware in SHIPPED.items()
    }
    return {**shipped, **{name: (build, read_hardware(UNSEEN)) for name, build in programs().items()}}


def compare_program(
    build: Callable[[torch.device], Workload],
    hardware: Hardware,
    shares: tuple[float, ...] = SHARES,
    solvers: tuple[str, ...] = SOLVERS,
) -> Iterator[Compared]:
    """Profile the program, plan it, and execute each plan within its budget."""
    gc.collect()
    sim = use_sim(hardware)
    workload = build(sim.device)
    graph = profile_step(workload.step, sim.device, model=workload.model, optimizer=workload.optimizer)
    for share in shares:
        problem = make_swap_problem(graph, hardware, 0)
        least, peak = least_budget(problem), max(graph.memory_bytes)
        problem = make_swap_problem(graph, hardware, int(least + share * (peak - least)))
        for solver in solvers:
            yield _compare(workload, graph, problem, solver, share)


def _compare(workload: Workload, graph: OpGraph, problem: SwapProblem, solver: str, share: float) -> Compared:
    plan = build_solver(solver, {}).solve(problem, LIMITS).plan
    assert plan is not None, "at the least budget and above there is a plan"
    schedule = lower(problem, plan)
    executor = SwapExecutor(schedule, graph)
    for _ in range(STEPS):
        done = executor.run(workload.step)
    return Compared(solver, share, simulate(problem, schedule), done.report, bool(done.counts.as_planned))


def _program_figure(name: str, hardware: Hardware, compared: list[Compared]) -> Figure:
    worst = max(compared, key=lambda one: abs(one.deviation))
    executed, predicted = worst.executed, worst.predicted
    followed = sum(one.as_planned for one in compared)
    parts = {
        "base": (predicted.base_us, executed.base_us),
        "stall": (sum(predicted.stall_us.values()), sum(executed.stall_us.values())),
        "launches": (predicted.launch_us, executed.launch_us),
    }
    shown = ", ".join(f"{part} {one or 0:.0f}/{other or 0:.0f}" for part, (one, other) in parts.items())
    how = (
        f"worst of {len(compared)} ({followed} as planned): {worst.solver}, {worst.share:.0%} from least to peak, "
        f"{predicted.makespan_us:.0f} µs predicted / {executed.makespan_us:.0f} executed on {hardware.name} ({shown})"
    )
    return Figure(f"{name}, executed over predicted", 100 * worst.deviation, "%", None, "", how)
