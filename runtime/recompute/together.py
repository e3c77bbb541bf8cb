"""Ranks that decide as one: those of a group that communicates within the blocks train by one joint plan.

Where each rank planned for itself, one that computes more before a collective would make all others wait for it, and no
plan would know. So they exchange what they measured, and the group's first rank decides for all: by the largest times
and sizes, so that the plan keeps each rank's budget.

Each call of `Together` is an exchange that all ranks of the group have to come to, like a collective. The places are
those at which their blocks would wait for each other anyway: where a pass begins.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch.distributed import distributed_c10d

from runtime.recompute.layer import Layer
from runtime.recompute.tape import Tape
from solvers.ir.errors import BayplanError, InvalidInput
from solvers.ir.joint import JointOp, JointProblem
from solvers.ir.solution import Limits, Solution, Watch
from solvers.ir.swap import SwapLink
from solvers.planner import AnySolver, Checked, solve

T = TypeVar("T")


def groups_of(tape: Tape) -> set[dist.ProcessGroup]:
    """With whom the operators of a tape that has just been recorded communicate."""
    told = [*tape.groups, *(node.group for node in tape.nodes if node.communicates)]
    return {_group(one) for one in told if one is not None}


def _group(told: Any) -> dist.ProcessGroup:
    """By its name (functional collectives), or as scripts hold it (c10d's own operators)."""
    c10d: Any = distributed_c10d  # its stub leaves out by what name a group is found
    group: dist.ProcessGroup = (
        c10d._resolve_process_group(told) if isinstance(told, str) else dist.ProcessGroup.unbox(told)
    )
    return group


def require_simulated(device: torch.device, layers: Sequence[Layer]) -> None:
    """Raise `InvalidInput` where blocks communicate on a real device: joint plans never ran there."""
    if device.type == "sim" or not any(map(communicates, layers)):
        return
    raise InvalidInput(
        f"the blocks wait for collectives on {device}, and joint plans of such blocks are carried out on simulated "
        "ranks only: choose a solver of kind recompute-graph, such as opt"
    )


def communicates(layer: Layer) -> bool:
    """Whether a block waits for a collective, or begins one."""
    return bool(layer.forward_waits_us or layer.backward_waits_us) or any(unit.communicates for unit in layer.units)


def together_with(groups: Collection[dist.ProcessGroup]) -> "Together | None":
    """The ranks with whom blocks communicate; None: with nobody. Raises `InvalidInput` on several groups."""
    several = [one for one in groups if one.size() > 1]
    if len(several) > 1:
        raise InvalidInput(
            f"the blocks communicate in {len(several)} groups, and a joint plan is one for the ranks of one: choose a "
            "solver of kind recompute-graph, such as opt"
        )
    return Together(several[0]) if several else None


@dataclass(frozen=True)
class Together:
    """The ranks of one group."""

    group: dist.ProcessGroup

    def all(self, mine: bool) -> bool:
        """Whether it is so on every rank."""
        return all(self._told(mine))

    def any(self, *mine: bool) -> list[bool]:
        """Of each, whether it is so on one rank at least."""
        return [any(one) for one in zip(*self._told(mine), strict=True)]

    def problem(self, mine: JointProblem) -> JointProblem:
        """One that is as hard as each rank's; raises `InvalidInput` where they are of different operators."""
        return hardest(self._told(mine))

    def solve(self, solver: AnySolver, problem: JointProblem, limits: Limits) -> Checked:
        """What the first rank's solver answers, on each rank judged anew; `BayplanError` as `planner.solve`."""
        if self.group.rank() > 0:
            return solve(_Told(self._from_first(None)), problem, limits)
        try:
            found = solve(solver, problem, limits)
        except BayplanError as error:
            self._from_first(str(error))
            raise
        self._from_first(found.solution)
        return found

    def _told(self, mine: T) -> list[T]:
        """What each rank says, by rank."""
        found: list[Any] = [None] * self.group.size()
        dist.all_gather_object(found, mine, group=self.group)
        return found

    def _from_first(self, told: object) -> Any:
        box = [told]
        dist.broadcast_object_list(box, group=self.group, group_src=0)
        return box[0]


@dataclass(frozen=True)
class _Told:
    """A solver that says what another rank's has answered, or why that one had to refuse."""

    answer: Solution[Any] | str

    def solve(self, problem: JointProblem, limits: Limits, watch: Watch | None = None) -> Solution[Any]:
        """The same for any problem: the judge looks at it next."""
        if isinstance(self.answer, str):
            raise InvalidInput(self.answer)
        return self.answer


def hardest(problems: Sequence[JointProblem]) -> JointProblem:
    """One problem that is as hard as each of these: a plan that it allows is one of all, and no slower there.

    Raises `InvalidInput` where they are of different operators.
    """
    first = problems[0]
    for rank, other in enumerate(problems):
        _require_alike(rank, first, other)
    hosts = [one.host_budget_bytes for one in problems if one.host_budget_bytes is not None]
    return replace(
        first,
        budget_bytes=min(one.budget_bytes for one in problems),
        static_bytes=max(one.static_bytes for one in problems),
        host_budget_bytes=min(hosts, default=None),
        comm_shares_link=any(one.comm_shares_link for one in problems),
        link=_slowest([one.link for one in problems]),
        ops=tuple(_largest(ops) for ops in zip(*(one.ops for one in problems), strict=True)),
        launch_us=max(one.launch_us for one in problems),
    )


def _slowest(links: Sequence[SwapLink]) -> SwapLink:
    exact = [one.latency_ns for one in links if one.latency_ns is not None]
    return SwapLink(
        out_bytes_per_s=min(one.out_bytes_per_s for one in links),
        in_bytes_per_s=min(one.in_bytes_per_s for one in links),
        latency_us=max(one.latency_us for one in links),
        latency_ns=max(exact) if len(exact) == len(links) else None,
    )


def _largest(ops: Sequence[JointOp]) -> JointOp:
    return replace(
        ops[0],
        time_us=max(op.time_us for op in ops),
        output_bytes=max(op.output_bytes for op in ops),
        workspace_bytes=max(op.workspace_bytes for op in ops),
        inputs=tuple(sorted({one for op in ops for one in op.inputs})),
        replay=all(op.replay for op in ops),
        copies=max(op.copies for op in ops),
        launch_us=max(op.launch_us for op in ops),
        again_launch_us=(
            None if all(op.again_launch_us is None for op in ops) else max(op.launch_again_us for op in ops)
        ),
        host_waits=any(op.host_waits for op in ops),
        read_us=max(op.read_us for op in ops),
        sent_us=max(op.sent_us for op in ops),
        sync=min((op.sync for op in ops if op.sync), default=None),  # "device" waits for more
        tail_us=None if all(op.tail_us is None for op in ops) else max(op.after_launch_us for op in ops),
    )


def _require_alike(rank: int, first: JointProblem, other: JointProblem) -> None:
    mine, theirs = ([(op.name, op.comm) for op in one.ops] for one in (first, other))
    if mine == theirs and first.replays_from == other.replays_from:
        return
    at = next((at for at, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1]), len(mine))
    told = [names[at][0] if at < len(names) else "nothing" for names in (mine, theirs)]
    raise InvalidInput(
        f"ranks of one group train different blocks: operator {at} is {told[0]} on its rank 0 and {told[1]} on its "
        f"rank {rank}, and a joint plan is one for all: choose a solver of kind recompute-graph, such as opt"
    )
