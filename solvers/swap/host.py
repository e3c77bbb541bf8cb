"""Host memory of a plan (README, Host memory): how much a set of tensors takes, and whether it may."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from solvers.ir.swap import SwapPlan, SwapProblem


@dataclass(frozen=True)
class HostRoom:
    """What swapped tensors may take of the host.

    Tensor i takes `size[i]` bytes after each op from `first[i]` to the one before `last[i]`. Memory is shared over time
    within a pool only: the need is the sum, over pools, of the most that each ever holds.
    """

    budget: int
    size: list[int]
    first: list[int]
    last: list[int]
    pool: list[int]

    def need_bytes(self, selected: Iterable[int]) -> int:
        """The most that a set of tensors takes."""
        changes: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for tensor in selected:
            size = self.size[tensor]
            changes[self.pool[tensor]] += [(self.first[tensor], size), (self.last[tensor], -size)]
        return sum(_most(pool) for pool in changes.values())

    def holds(self, selected: Iterable[int]) -> bool:
        """Whether the host has room for a set of tensors."""
        return self.need_bytes(selected) <= self.budget

    def peaks(self) -> list[list[list[int]]]:
        """For each pool the sets of tensors that may be on the host together, those within another one left out."""
        members: dict[int, list[int]] = defaultdict(list)
        for tensor, pool in enumerate(self.pool):
            members[pool].append(tensor)
        return [self._together(tensors) for tensors in members.values()]

    def _together(self, tensors: list[int]) -> list[list[int]]:
        """Sets grow until something returns, so only the last op before a return needs to be looked at."""
        arrivals = sorted({self.first[tensor] for tensor in tensors})
        returns = sorted({self.last[tensor] for tensor in tensors})
        found, place = [], 0
        for number, op in enumerate(arrivals):
            while place < len(returns) and returns[place] <= op:
                place += 1
            following = arrivals[number + 1] if number + 1 < len(arrivals) else None
            if following is None or (place < len(returns) and returns[place] <= following):
                found.append([tensor for tensor in tensors if self.first[tensor] <= op < self.last[tensor]])
        return found


class HostLoad:
    """Host memory while a set grows tensor by tensor; without a room there is always some."""

    def __init__(self, room: HostRoom | None, ops: int) -> None:
        self.room, self.ops = room, ops
        self.load: dict[int, np.ndarray] = {}
        self.most: dict[int, int] = defaultdict(int)

    def fits(self, tensor: int) -> bool:
        """Whether the set may take this tensor, too."""
        if self.room is None:
            return True
        others = sum(self.most.values()) - self.most[self.room.pool[tensor]]
        return others + self._most_with(self.room, tensor) <= self.room.budget

    def add(self, tensor: int) -> None:
        """The set takes it."""
        if self.room is None:
            return
        pool = self.room.pool[tensor]
        self.most[pool] = self._most_with(self.room, tensor)
        self._of(pool)[self.room.first[tensor] : self.room.last[tensor]] += self.room.size[tensor]

    def _of(self, pool: int) -> np.ndarray:
        if pool not in self.load:
            self.load[pool] = np.zeros(self.ops, dtype=np.int64)
        return self.load[pool]

    def _most_with(self, room: HostRoom, tensor: int) -> int:
        pool = room.pool[tensor]
        meanwhile = int(self._of(pool)[room.first[tensor] : room.last[tensor]].max())
        return max(self.most[pool], meanwhile + room.size[tensor])


def host_room(problem: SwapProblem) -> HostRoom | None:
    """The problem's limit of host memory; None where it has none."""
    if problem.host_budget_bytes is None:
        return None
    return _room(problem, problem.host_budget_bytes, problem.host_rounding == "power-of-two")


def host_need(problem: SwapProblem, plan: SwapPlan, *, rounded: bool = False) -> int:
    """The bytes of the host that a plan takes, whatever the problem's limit; `rounded`: in blocks of powers of two."""
    number = {tensor.id: index for index, tensor in enumerate(problem.tensors)}
    return _room(problem, 0, rounded).need_bytes(number[swap.tensor] for swap in plan.swaps)


def _room(problem: SwapProblem, budget_bytes: int, rounded: bool) -> HostRoom:
    size = [power_of_two(tensor.bytes) if rounded else tensor.bytes for tensor in problem.tensors]
    return HostRoom(
        budget=budget_bytes,
        size=size,
        first=[tensor.last_forward_use for tensor in problem.tensors],
        last=[tensor.first_backward_use for tensor in problem.tensors],
        pool=list(size) if rounded else [0] * len(size),
    )


def power_of_two(size_bytes: int) -> int:
    """The least power of two that is not below it; 0 stays 0."""
    return 1 << (size_bytes - 1).bit_length() if size_bytes > 0 else 0


def _most(changes: list[tuple[int, int]]) -> int:
    """The highest sum of changes in order of op; what returns before an op goes first."""
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most
