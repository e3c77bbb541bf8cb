"""Every policy of one experiment, executed and written down."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import hydra.utils
from omegaconf import OmegaConf

from experiments.config import AllocatorKind, Baseline, DeviceKind, ModelConf, Settings
from experiments.execution import Decided, Execution, Treatment, attempt, execute
from experiments.figures import Figures
from experiments.hardware import read_hardware
from experiments.models import Model
from experiments.pictures import Curve, Panel, curve_of_graph, curve_of_report, panel_of_report
from experiments.planning import Prepared
from experiments.remarks import remarks
from experiments.rows import commit
from experiments.worlds import World
from solvers.ir import OpGraph, Report, Row, Solution, Status, SwapProblem

Answer = Literal["ok", "infeasible", "out-of-memory", "timeout", "refused", "error"]
WARM_UP = 2
"""Steps that come before a plan whose own first step was not the profiled one: as many as before that one."""
SMALLER = (0.97, 0.93, 0.88)
"""Shares of the budget that plans are made for once one found no segment, as a program's blocks lie elsewhere."""
NO_PLAN: dict[Status, Answer] = {Status.INFEASIBLE: "infeasible", Status.UNKNOWN: "timeout"}


@dataclass(frozen=True)
class Outcome:
    """One policy's row, and what there is to draw of it."""

    row: Row
    curve: Curve | None = None
    panel: Panel | None = None
    report: Report | None = None
    decided: Decided | None = None


@dataclass(frozen=True)
class Bench:
    """What all policies of an experiment share: the world, the model, the unlimited run, its graph, the problem."""

    settings: Settings
    world: World
    model: Model
    unlimited: Execution
    graph: OpGraph
    problem: SwapProblem
    tell: Callable[[str], None]

    @property
    def budget_bytes(self) -> int:
        """The device memory that a policy may use."""
        return self.problem.budget_bytes

    def row(self, policy: str, outcome: Answer, figures: Figures, reason: str | None = None) -> Row:
        """A row of this experiment."""
        settings = self.settings
        asked: dict[str, Any] = {
            "policy": policy,
            "model": OmegaConf.to_container(OmegaConf.structured(settings.model)),
            "hardware": self.world.hardware.name,
            "link_bytes_per_s": self.problem.link.out_bytes_per_s,
            "device": settings.device.value,
            "problem": settings.problem.kind,
            "budget_bytes": self.budget_bytes,
            "steps": settings.steps,
        }
        if settings.allocator is not AllocatorKind.exact:
            asked["allocator"] = settings.allocator.value
        return Row(
            experiment=settings.name,
            asked=asked,
            outcome=outcome,
            figures=figures.to_raw(),
            provenance=self.world.name,
            commit=commit(),
            seed=settings.limits.seed,
            reason=reason,
        )


def make_model(conf: ModelConf) -> Model:
    """The model that the settings describe."""
    return cast("Model", hydra.utils.instantiate(OmegaConf.structured(conf)))


def run_baseline(bench: Bench, baseline: Baseline) -> Outcome:
    """One of the policies that need no solver."""
    if baseline is Baseline.unlimited:
        figures = replace(executed_figures(bench, bench.unlimited), budget_bytes=None)
        curve = curve_of_graph("unlimited", bench.graph)
        return Outcome(bench.row("unlimited", "ok", figures), curve)
    recompute = baseline is Baseline.recompute
    done = attempt(
        lambda: execute(
            bench.model,
            bench.world,
            bench.settings.steps,
            Treatment(capacity_bytes=bench.budget_bytes, recompute=recompute),
            profile=baseline.value if recompute else None,
            tell=lambda text: bench.tell(f"{baseline.value}: {text}"),
        )
    )
    row = bench.row(baseline.value, done.end, executed_figures(bench, done), done.reason)
    return Outcome(row, None if done.graph is None else curve_of_graph(baseline.value, done.graph))


def run_plan(
    bench: Bench, name: str, prepared: Prepared, keep: Callable[[Prepared], None] = lambda prepared: None
) -> Outcome:
    """A solver's plan, executed as planned and in the other worlds.

    Where its blocks find no segment, as they lie elsewhere than in the profiled step, one for a smaller share of the
    budget is made and executed in its place; `keep` is given each such.
    """
    figures = _solved(bench, prepared)
    if prepared.planned is None or prepared.predicted is None:
        status = prepared.solution.status
        return Outcome(bench.row(name, NO_PLAN[status], figures, prepared.solution.reason))
    done = _executed(bench, name, prepared)
    for share in SMALLER:
        if not done.no_segment or prepared.again is None:
            break
        tighter = prepared.again(share)
        if tighter.planned is None or tighter.predicted is None:
            break
        prepared, figures = tighter, _solved(bench, tighter)
        keep(prepared)
        done = _executed(bench, name, prepared)
    assert prepared.planned is not None and prepared.predicted is not None
    figures = figures.joined(executed_figures(bench, done))
    if done.report is None or done.typical_step_us is None:
        return Outcome(bench.row(name, done.end, figures, done.reason))
    figures = replace(
        figures,
        stall_us=float(sum(done.report.stall_us.values())),
        launch_us=done.report.launch_us,
        predicted_us=prepared.predicted.makespan_us,
        predicted_peak_bytes=prepared.predicted.peak_bytes,
        deviation=1 - prepared.predicted.makespan_us / done.typical_step_us,
        as_planned=done.departure is None,
    ).joined(_stalls_elsewhere(bench, prepared, done.warm_up))
    return Outcome(
        bench.row(name, "ok", figures, remarks_on(bench, done)),
        curve_of_report(name, done.report),
        panel_of_report(name, done.report, prepared.planned),
        done.report,
    )


def _executed(bench: Bench, name: str, prepared: Prepared) -> Execution:
    """From the first step on; after a warm-up where a program makes in its first steps what later ones find there."""
    done = _executed_after(bench, name, prepared, 0)
    warm_up = min(WARM_UP, bench.settings.steps - 1)
    if not done.differs or warm_up < 1:
        return done
    warmed = _executed_after(bench, name, prepared, warm_up)
    return done if warmed.differs else warmed


def _executed_after(bench: Bench, name: str, prepared: Prepared, warm_up: int) -> Execution:
    return attempt(
        lambda: execute(
            bench.model,
            bench.world,
            bench.settings.steps,
            Treatment(capacity_bytes=bench.budget_bytes, planned=prepared.planned, warm_up=warm_up),
            tell=lambda text: bench.tell(f"{name}: {text}"),
        )
    )


def remarks_on(bench: Bench, done: Execution) -> str | None:
    """What there is to say of a plan that trained to the end."""
    return remarks(
        done,
        bench.unlimited,
        bench.budget_bytes,
        max(bench.graph.memory_bytes),
        again=lambda: attempt(lambda: execute(bench.model, bench.world, bench.settings.steps)),
    )


def refused(bench: Bench, name: str, reason: str) -> Outcome:
    """A solver that refused the problem, or whose plan did not pass its check."""
    figures = Figures(budget_bytes=bench.budget_bytes, unlimited_us=bench.unlimited.typical_step_us, status="refused")
    return Outcome(bench.row(name, "refused", figures, reason))


def executed_figures(bench: Bench, done: Execution) -> Figures:
    """What a training shows beside the unlimited one."""
    losses, parameters, gradients = done.equals(bench.unlimited)
    finished = done.reason is None
    return Figures(
        budget_bytes=bench.budget_bytes,
        peak_bytes=done.peak_bytes,
        step_us=done.typical_step_us,
        unlimited_us=bench.unlimited.typical_step_us,
        losses=done.losses.tolist() if finished and bool(done.losses.isfinite().all()) else None,
        equal_losses=losses if finished else None,
        equal_parameters=parameters if finished else None,
        equal_gradients=gradients if finished else None,
    )


def _solved(bench: Bench, prepared: Prepared) -> Figures:
    solution = prepared.solution
    sizes = {tensor.id: tensor.bytes for tensor in bench.problem.tensors}
    return answered_figures(solution).joined(
        Figures(
            budget_bytes=bench.budget_bytes,
            unlimited_us=bench.unlimited.typical_step_us,
            swapped_bytes=None if solution.plan is None else sum(sizes[swap.tensor] for swap in solution.plan.swaps),
        )
    )


def answered_figures(solution: Solution[Any]) -> Figures:
    """What a solver answered, of any kind."""
    return Figures(
        status=solution.status.value,
        engine=solution.engine,
        objective_us=solution.objective,
        bound_us=solution.bound,
        base_us=solution.base,
        gap=solution.gap,
        overhead_gap=solution.overhead_gap,
        solve_time_s=solution.solve_time_s,
        least_budget_bytes=solution.least_budget_bytes,
    )


def _noisy(bench: Bench) -> list[World]:
    robustness = bench.settings.robustness
    if bench.world.kind is not DeviceKind.sim:
        return []  # a real device has the noise that it has
    return [replace(bench.world, noise=robustness.noise, seed=seed) for seed in robustness.noise_seeds]


def _foreign(bench: Bench) -> list[World]:
    name = bench.settings.robustness.hardware
    return (
        []
        if name is None or bench.world.kind is not DeviceKind.sim
        else [replace(bench.world, hardware=read_hardware(name))]
    )


def _stalls_elsewhere(bench: Bench, prepared: Prepared, warm_up: int) -> Figures:
    noisy = _all_known([_stall(bench, prepared, world, warm_up) for world in _noisy(bench)])
    foreign = _all_known([_stall(bench, prepared, world, warm_up) for world in _foreign(bench)])
    return Figures(
        noise_stall_us=sum(noisy) / len(noisy) if noisy else None,
        noise_worst_us=max(noisy, default=None),
        other_stall_us=max(foreign, default=None),
    )


def _all_known(values: Sequence[float | None]) -> list[float]:
    """The values, or none of them where one is missing: a mean over those that finished would flatter."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def _stall(bench: Bench, prepared: Prepared, world: World, warm_up: int) -> float | None:
    """The stall of the plan's last step in another world; None where it does not finish there."""
    bench.tell(f"{prepared.solution.solver}: {world.name}")
    done = attempt(
        lambda: execute(
            bench.model,
            world,
            max(1, warm_up) + bench.settings.robustness.steps,
            Treatment(capacity_bytes=bench.budget_bytes, planned=prepared.planned, warm_up=warm_up),
        )
    )
    return None if done.report is None or done.reason else float(sum(done.report.stall_us.values()))
