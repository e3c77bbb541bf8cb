"""Training for a few steps in a world, with or without a plan: what it computed, how long it took, what it needed."""

import os
import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from experiments.bits import all_same_bits, same_bits
from experiments.command_line import TRACEBACK
from experiments.departures import in_words, of_session
from experiments.models import Model, Step, TheirStep, Workload
from experiments.profiled import SESSION
from experiments.worlds import World
from runtime.device import clock, limited_memory, memory_limit_bytes, memory_stats
from runtime.device.device import segment_settings
from runtime.profile import profile_step, told
from runtime.recompute import RecomputeReport, RecomputeSession, plan
from runtime.recompute.joint import JointStep
from runtime.swap import NoSegment, StepDiffers, SwapCounts, SwapExecutor, gather
from solvers.ir import BayplanError, Limits, OpGraph, Report, Schedule, Solution, SwapProblem
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.sentences import one_line

End = Literal["ok", "out-of-memory", "infeasible", "refused", "error"]
"""How a training ended: `refused` by a sentence of Bayplan's (`infeasible`: with the least budget), or `error`."""


@dataclass(frozen=True)
class Planned:
    """A plan that is ready to execute."""

    graph: OpGraph
    problem: SwapProblem
    schedule: Schedule


@dataclass(frozen=True)
class Joint:
    """A plan of kind `joint` that a session (`runtime.recompute.plan`) makes of the first step for those behind it."""

    solver: str
    parameters: Mapping[str, object]
    budget_bytes: int
    limits: Limits


@dataclass(frozen=True)
class Decided:
    """What such a session decided and did; `predicted` is the plan's step as simulated, `graph` the measured one."""

    report: RecomputeReport
    graph: OpGraph
    problem: JointProblem
    solution: Solution[JointPlan]
    schedule: Schedule
    predicted: Report


@dataclass(frozen=True)
class Treatment:
    """What a training has and does: so much memory (None: all), blocks computed again, a plan, or one to be made.

    The first `warm_up` steps have all memory, and no plan.
    """

    capacity_bytes: int | None = None
    recompute: bool = False
    planned: Planned | None = None
    joint: Joint | None = None
    warm_up: int = 0


PLAIN = Treatment()
"""All memory, and no plan."""


@dataclass(frozen=True)
class Execution:
    """What a policy did. `reason` says why it did not finish; then there are no steps, or fewer than asked for.

    `differs`: as a step was not the one that was profiled. `no_segment`: as its blocks lay otherwise than in that step.

    `step_us` holds every step's time on the device's clock; `report` is the last planned step's, and `departure` says
    in which steps the plan was not followed, and how. `warm_up` steps came before, without plan and limit, which count
    in losses alone.
    """

    losses: torch.Tensor
    end: End = "ok"
    parameters: tuple[torch.Tensor, ...] = ()
    gradients: tuple[torch.Tensor | None, ...] = ()
    step_us: tuple[float, ...] = ()
    peak_bytes: int = 0
    report: Report | None = None
    departure: str | None = None
    graph: OpGraph | None = None
    reason: str | None = None
    decided: Decided | None = None
    least_budget_bytes: int | None = None
    no_segment: bool = False
    differs: bool = False
    warm_up: int = 0

    @property
    def typical_step_us(self) -> float | None:
        """The median of the steps after the first, which creates the optimizer's states, and after the warm-up."""
        return statistics.median(self.step_us[max(1, self.warm_up) :] or self.step_us) if self.step_us else None

    def equals(self, other: "Execution") -> tuple[bool, bool, bool]:
        """Whether losses, parameters and gradients are those of another run, bit for bit (NaN too)."""
        return (
            same_bits(self.losses, other.losses),
            all_same_bits(self.parameters, other.parameters),
            all_same_bits(self.gradients, other.gradients),
        )


def execute(
    model: Model,
    world: World,
    steps: int,
    under: Treatment = PLAIN,
    *,
    profile: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Execution:
    """Build the model in the world and train it; out of memory is an answer, not an error (but `StepDiffers` is).

    With a name as `profile`, one further step is recorded as a graph of that name, after everything else.
    """
    try:
        device = world.open(None if under.warm_up else under.capacity_bytes)
        workload = model.build(device, recompute=under.recompute)
        done = _train(workload, device, steps, under, profile, tell)
    except StepDiffers:
        raise
    except torch.OutOfMemoryError as error:
        reason = str(error).strip().split("\n")[0]
        done = None
    if done is not None:
        return done
    peak_bytes = memory_stats(device).peak_bytes
    return Execution(losses=torch.empty(0, device="cpu"), end="out-of-memory", peak_bytes=peak_bytes, reason=reason)


def attempt(run: Callable[[], Execution]) -> Execution:
    """What `run` did; an error of it is its reason, so that it ends one policy and not the experiment.

    Ctrl-C passes through, and so does what is no `BayplanError` where BAYPLAN_TRACEBACK asks to see it.
    """
    try:
        return run()
    except InfeasibleBudget as error:
        least, reason = error.least_budget_bytes, one_line(error)
        none = torch.empty(0, device="cpu")
        return Execution(losses=none, end="infeasible", reason=reason, least_budget_bytes=least)
    except BayplanError as error:
        none, lies = torch.empty(0, device="cpu"), isinstance(error, NoSegment)
        differs = isinstance(error, StepDiffers) and not lies
        return Execution(losses=none, end="refused", reason=one_line(error), no_segment=lies, differs=differs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if os.environ.get(TRACEBACK):
            raise
        reason = f"raised {' '.join(told(error).split())}, which it does not with unlimited memory"
        return Execution(losses=torch.empty(0, device="cpu"), end="error", reason=reason)


def _train(
    workload: Workload,
    device: torch.device,
    steps: int,
    under: Treatment,
    profile: str | None,
    tell: Callable[[str], None],
) -> Execution:
    now_ns = clock(device)
    follower = _Follower(under.planned, device, under.warm_up)
    session = None if under.joint is None else _session(under.joint, workload)
    losses, times, peaks = [], [], []
    with ExitStack() as limited, nullcontext() if session is None else session:
        for number in range(steps):
            warming = number < under.warm_up
            if number == under.warm_up > 0 and under.capacity_bytes is not None:
                limited.enter_context(limited_memory(device, under.capacity_bytes))
            began = now_ns()
            loss = workload.step() if warming else follower.run(workload.step, bare=session is not None)
            times.append((now_ns() - began) / 1e3)
            if not warming:
                peaks.append(memory_stats(device).peak_bytes)  # of this step: an executor starts each step's peak anew
            losses.append(loss.detach().cpu())  # on the device it would be in the next step's way
            del loss
            if number == max(0, under.warm_up - 1) and under.planned is not None:
                _put_together(workload, device)
            tell(f"step {number + 1} of {steps}")
    decided = None if session is None else _decided(session)
    if decided is not None:
        peaks.append(decided.report.peak_bytes)
    parameters = tuple(workload.model.parameters())
    return Execution(
        losses=torch.stack(losses).flatten(),
        parameters=tuple(one.detach().cpu().clone() for one in parameters),
        gradients=tuple(None if one.grad is None else one.grad.detach().cpu().clone() for one in parameters),
        step_us=tuple(times),
        peak_bytes=max(peaks),
        report=follower.report,
        departure=follower.departure if decided is None else of_session(decided.report),
        decided=decided,
        warm_up=under.warm_up,
        graph=_profile(workload, device, profile) if profile is not None else None,
    )


def _session(joint: Joint, workload: Workload) -> RecomputeSession:
    return plan(
        workload.model,
        budget=joint.budget_bytes,
        solver=joint.solver,
        parameters=joint.parameters,
        limits=joint.limits,
    )


def _decided(session: RecomputeSession) -> Decided:
    """What a session decided that trained two steps or more."""
    if session.solution is None:
        raise InvalidInput(
            "each step was measured anew, as its passes were other than in the one before, so nothing was planned: "
            f"{SESSION}"
        )
    report, whole = session.report(), session.whole
    assert isinstance(whole, JointStep) and whole.answer is not None and whole.answer.schedule is not None
    assert whole.step is not None and whole.problem is not None and whole.report is not None
    solution, schedule = whole.answer.solution, whole.answer.schedule
    return Decided(report, whole.step.graph, whole.problem, solution, schedule, whole.report)


def _executor(planned: Planned, device: torch.device) -> SwapExecutor:
    """Within the host memory that the plan was made for."""
    return SwapExecutor(planned.schedule, planned.graph, device, host_limit_bytes=planned.problem.host_budget_bytes)


class _Follower:
    """Runs steps under a plan, or plainly where there is none; `report` is the last planned step's."""

    def __init__(self, planned: Planned | None, device: torch.device, warm_up: int) -> None:
        self.report: Report | None = None
        self._warm_up = warm_up
        self._counts: list[SwapCounts] = []
        self._executor = None if planned is None else _executor(planned, device)

    @property
    def departure(self) -> str | None:
        """In which steps the plan was not followed, and how; the first step, which creates states, may differ."""
        return in_words(self._counts, self._warm_up)

    def run(self, step: Step, *, bare: bool = False) -> torch.Tensor:
        """One step's loss; `bare` leaves errors as they are, as they are for an executor."""
        plain = step.bare if isinstance(step, TheirStep) else step
        if self._executor is None:
            return plain() if bare else step()
        done = self._executor.run(plain)
        self.report = done.report
        self._counts.append(done.counts)
        return done.value


def _put_together(workload: Workload, device: torch.device) -> None:
    """Where the allocator holds segments, what the first step made (states) lies between what it needed.

    Plans are for a step before which that lies in few segments: profiled steps and planned ones begin alike.
    """
    if segment_settings(device, memory_limit_bytes(device)) is not None:
        gather(workload.model, workload.optimizer)
        torch.accelerator.empty_cache()


def _profile(workload: Workload, device: torch.device, name: str) -> OpGraph:
    _put_together(workload, device)
    return profile_step(workload.step, device, name=name, model=workload.model, optimizer=workload.optimizer, warmup=1)
