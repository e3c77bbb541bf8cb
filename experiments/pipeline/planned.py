"""All systems of one pipeline experiment, each with its step, and how far it is from the best possible one."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.pipeline.figures import figures_of
from experiments.pipeline.simulate import Step, simulate, too_few_layers
from experiments.rows import commit
from solvers.ir import Row
from solvers.ir.recompute import RecomputeLayerProblem
from solvers.partition.bounds import best_possible, least_critical_us, without_recomputation
from solvers.partition.pipeline import Pipeline
from solvers.partition.policies import System
from solvers.partition.stages import StageChoice, Stages
from solvers.partition.steps import Unfit
from solvers.timeline.pipeline.inputs import Hide


@dataclass(frozen=True)
class Limit:
    """What no system can beat: with the memory there is, and with memory without end."""

    bound_us: int | None
    base_us: int | None
    reason: str | None


@dataclass(frozen=True)
class Planned:
    """A system's step, or why it has none, and what deciding took."""

    name: str
    step: Step | Unfit
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """One experiment: every system, and the limit of them all."""

    pipeline: Pipeline
    planned: tuple[Planned, ...]
    limit: Limit
    seconds: float

    def named(self, name: str | None) -> Planned | None:
        """The system of that name; without a name the fastest one, of equals the last. None where it has no step."""
        steps = [one for one in self.planned if isinstance(one.step, Step) and name in (None, one.name)]
        return max(reversed(steps), key=_speed, default=None)


def _speed(planned: Planned) -> float:
    return planned.step.samples_per_s if isinstance(planned.step, Step) else 0.0


def compare_systems(pipeline: Pipeline, systems: Mapping[str, System]) -> Comparison:
    """Decide and simulate every system; systems of one policy share what its stages were asked."""
    began = time.perf_counter()
    stages: dict[str, Stages] = {}
    planned = []
    for name, system in systems.items():
        begun = time.perf_counter()
        step = simulate(pipeline, system, stages)
        planned.append(Planned(name, step, time.perf_counter() - begun))
    hide: Hide = "all" if any(system.hide == "all" for system in systems.values()) else "cooldown"
    limit = _limit(pipeline, hide)
    return Comparison(pipeline, tuple(planned), limit, time.perf_counter() - began)


def _limit(pipeline: Pipeline, hide: Hide) -> Limit:
    """The bound of every mix and partition, and the fastest step if nothing were recomputed."""
    if pipeline.shape.layers < pipeline.parallelism.pipeline:
        return Limit(None, None, too_few_layers(pipeline))
    best = best_possible(pipeline.problem, hide)
    if best.layers is None:
        return Limit(None, None, best.reason)
    return Limit(best.bound_us, without_recomputation(pipeline.problem).bound_us, None)


def rows_of(experiment: str, comparison: Comparison, asked: Mapping[str, Any]) -> list[Row]:
    """One row for each system."""
    return [_row(experiment, comparison, one, asked) for one in comparison.planned]


def _row(experiment: str, comparison: Comparison, one: Planned, asked: Mapping[str, Any]) -> Row:
    unfit, system = isinstance(one.step, Unfit), one.step.system
    return Row(
        experiment=experiment,
        asked={"policy": one.name, **asked, "recompute": system.policy, "cut": system.cut, "hide": system.hide},
        outcome="infeasible" if unfit else "ok",
        figures=_figures(comparison, one),
        provenance=f"simulated, times by roofline and links of hardware {comparison.pipeline.machine.name}",
        commit=commit(),
        seed=0,
        reason=one.step.reason if isinstance(one.step, Unfit) else None,
    )


def _figures(comparison: Comparison, one: Planned) -> dict[str, Any]:
    """Times in µs of one step, memory in bytes, by stage where a stage matters; `gap` to the best possible step."""
    known: dict[str, Any] = {"budget_bytes": comparison.pipeline.budget_bytes, "solve_time_s": one.seconds}
    if isinstance(one.step, Unfit):
        return known
    step_us, limit = one.step.makespan_us, comparison.limit
    known |= {
        **figures_of(one.step),
        "stages": [stage_figures(one.step, stage) for stage in range(len(one.step.stages))],
    }
    known |= {"bound_us": limit.bound_us, "base_us": limit.base_us}
    if limit.bound_us is not None and limit.base_us is not None:
        over = step_us - limit.base_us
        known["gap"] = (step_us - limit.bound_us) / step_us
        known["overhead_gap"] = (step_us - limit.bound_us) / over if over else 0.0
    return known


def stage_figures(step: Step, stage: int) -> dict[str, Any]:
    """What a stage does with each of its groups of layers, by operator names; times of one microbatch."""
    one = step.stages[stage]
    problem = step.pipeline.heu_problem(stage, one.layers)
    return {
        "layers": one.layers,
        "critical_us": one.critical_us,
        "least_critical_us": least_critical_us(problem),
        "forward_hidden_us": one.forward_hidden_us,
        "backward_hidden_us": one.backward_hidden_us,
        "stored_bytes": one.memory.stored_bytes,
        "groups": [
            {"layers": group.layers, **_places(problem, one, number)} for number, group in enumerate(one.groups)
        ],
    }


def _places(problem: RecomputeLayerProblem, one: StageChoice, number: int) -> dict[str, list[str]]:
    """Operator names by what is done with them: `keep`, `in WINDOW`, or `on the critical path`."""
    group = one.groups[number]
    names = [*(f"in {window.name}" for window in problem.windows), "on the critical path"]
    found = {"keep": [problem.ops[i].name for i in group.stored]}
    for place, name in enumerate(names):
        again = [problem.ops[i].name for i, w in group.recomputed if w == place]
        if again:
            found[name] = again
    return found
