"""Points and rules of ProTrain's model that stand for other systems: models of those systems, not those systems (§5.1).

All of them offload every chunk; what else differs in those systems is said in `systems`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from solvers.ir.errors import InvalidInput
from solvers.ir.layout import LayoutPlan, LayoutProblem, Policy
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.layout.answers import fastest, feasible, without_plan
from solvers.layout.evaluate import Instance, device_bytes, host_bytes, instance, least_buffers


@dataclass(frozen=True)
class Zero3Offload:
    """DeepSpeed's ZeRO-3 with parameters and optimizer states offloaded: no chunk persists, all is checkpointed.

    `buffers` stands for its thresholds on live and prefetched parameters; None: tuned, as the paper did, over powers of
    two beyond the least, and the most that fit.
    """

    NAME: ClassVar[str] = "zero3-offload"
    buffers: int | None = None

    def solve(self, problem: LayoutProblem, limits: Limits, watch: Watch | None = None) -> Solution[LayoutPlan]:
        """The fastest on the lanes of the counts of buffers that fit."""
        given, least = instance(problem), least_buffers(instance(problem), ())
        if self.buffers is not None and self.buffers < least:
            raise InvalidInput(f"{self.NAME} has {self.buffers} buffers, but {least} are needed at once: give more")
        counts = [self.buffers] if self.buffers is not None else _doubling(least, _most_buffers(given))
        plans = (offloaded(problem, count, "checkpoint") for count in counts)
        return _best(self.NAME, given, plans, limits, watch)


@dataclass(frozen=True)
class ColossalStatic:
    """Colossal-AI's Gemini with static placement: no chunk persists or stays beyond its use, all is checkpointed."""

    NAME: ClassVar[str] = "colossal-static"

    def solve(self, problem: LayoutProblem, limits: Limits, watch: Watch | None = None) -> Solution[LayoutPlan]:
        """That point, if it fits."""
        given = instance(problem)
        plan = offloaded(problem, least_buffers(given, ()), "checkpoint")
        return _best(self.NAME, given, [plan], limits, watch)


@dataclass(frozen=True)
class Fsdp:
    """PyTorch's FSDP with CPU offload: the parameters of two blocks at a time; all is checkpointed only if it must be.

    `checkpoint` leaves no choice; None: where keeping everything does not fit, as in the paper.
    """

    NAME: ClassVar[str] = "fsdp"
    checkpoint: bool | None = None

    def solve(self, problem: LayoutProblem, limits: Limits, watch: Watch | None = None) -> Solution[LayoutPlan]:
        """Everything kept if that fits, else everything checkpointed."""
        given = instance(problem)
        policies: dict[bool | None, tuple[Policy, ...]] = {True: ("checkpoint",), False: ("keep",)}
        plans = [
            offloaded(problem, buffers_of_neighbours(given), policy)
            for policy in policies.get(self.checkpoint, ("keep", "checkpoint"))
        ]
        first = next((plan for plan in plans if fits(given, plan)), plans[-1])
        return _best(self.NAME, given, [first], limits, watch)


def offloaded(problem: LayoutProblem, buffers: int, policy: Policy) -> LayoutPlan:
    """No chunk persists; the policy holds for all blocks that have a choice."""
    policies: list[Policy] = [policy if block.choice else "keep" for block in problem.blocks]
    return LayoutPlan(persistent=(), buffers=buffers, policies=tuple(policies))


def fits(given: Instance, plan: LayoutPlan) -> bool:
    """Whether device and host hold the plan."""
    on_device = device_bytes(given, plan) <= given.problem.device_bytes
    return on_device and host_bytes(given, plan) <= given.problem.host_bytes


def buffers_of_neighbours(given: Instance) -> int:
    """What two blocks use that run one after the other, at most, and no less than the least of all passes."""
    used = [set(block.chunks) for block in given.problem.blocks]
    return max([least_buffers(given, ()), *(len(one | other) for one, other in pairwise(used))])


def _most_buffers(given: Instance) -> int:
    """As many as fit, and can be used."""
    problem = given.problem
    room = problem.device_bytes - device_bytes(given, offloaded(problem, 0, "checkpoint"))
    return min(room // problem.chunk_bytes, len(problem.chunks))


def _doubling(least: int, most: int) -> list[int]:
    """From the least on, ever further, up to the most; the least alone where that is too many already."""
    steps = (least + (1 << power) for power in range(max(1, most).bit_length()))
    return [least, *(count for count in steps if count < most), *([most] if most > least else [])]


def _best(
    solver: str, given: Instance, plans: Iterable[LayoutPlan], limits: Limits, watch: Watch | None
) -> Solution[LayoutPlan]:
    """The fastest of the plans that fit; without one, what the first of them lacks."""
    call = Call(solver, limits)
    every = list(plans)
    found = [plan for plan in every if fits(given, plan)]
    if not found:
        on_device, on_host = device_bytes(given, every[0]), host_bytes(given, every[0])
        lacking = (
            f"{solver} needs {on_device} bytes on the device and {on_host} on the host, but they have "
            f"{given.problem.device_bytes} and {given.problem.host_bytes}: use a smaller batch or another solver"
        )
        return without_plan(call, given, lacking)
    plan, end_us = fastest(given, found, call, watch)
    return feasible(call, given, plan, end_us)
