"""What the segments of a plan will hold, before it has run: its requests, replayed by the allocator's public rules.

The requests are those of the measured pass under the plan's policies (`asking.py`); the rules are those of
`solvers.timeline.segments`. A pass is replayed twice, with what the program took behind the measured one.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import torch

from runtime.device.held import Held, held_memory
from runtime.recompute.asking import PlannedPass
from runtime.recompute.footprint import Footprint
from runtime.recompute.policy import BlockPolicy
from runtime.recompute.requested import Pass
from solvers.ir.requests import in_use
from solvers.timeline.segments import Event as Request
from solvers.timeline.segments import replay, unlimited
from solvers.timeline.segments.settings import LEAST_OWN_SEGMENT, SMALL_SEGMENT, is_small, rounded


class Taken(NamedTuple):
    """What segments hold of a plan, and those of the pool for small requests among it.

    An arena takes what others leave of `within_bytes`; None: there is none.
    """

    bytes: int
    small_bytes: int
    within_bytes: int | None


ARENA = -(1 << 60)
"""The number of a block that is larger than all others, taken and given back at first."""


class Foresight:
    """The segments of plans for a measured pass that begins now, with what is in use now.

    `stays` names the tensors that stay from step to step. The cache counts as given back to the driver.
    """

    def __init__(
        self,
        device: torch.device,
        measured: Pass,
        footprint: Footprint,
        stays: Callable[[], Iterable[torch.Tensor]],
    ) -> None:
        self._device, self._measured, self._footprint, self._stays = device, measured, footprint, stays

    def of(self, policies: Sequence[BlockPolicy]) -> "Foreseen":
        """What a plan's segments will hold."""
        held = held_memory(self._device)
        assert held is not None
        there = self._there(held)
        walk = PlannedPass(self._measured, self._footprint.calls, policies, self._footprint.alone, there)
        return Foreseen(held, _twice(walk.requests(), there))

    def _there(self, held: Held) -> dict[int, int]:
        """The blocks in use that the pass may give back, by their numbers in a replay."""
        stays = {tensor.untyped_storage().data_ptr() - held.base for tensor in self._stays()}
        return {-1 - address: size for address, size in in_use(held.runs).items() if address not in stays}


class Foreseen:
    """A plan's requests, by pool; which one serves a request its size says.

    `small_bytes` is what the pool for small ones will hold, `begin_bytes` what large ones' holds before the pass.
    """

    def __init__(self, held: Held, requests: Sequence[Request]) -> None:
        self._held, self._settings = held, unlimited(held.settings)
        small = {one.block for one in requests if one.bytes and is_small(rounded(one.bytes))}
        small |= {-1 - address for address in in_use(tuple(run for run in held.runs if run.small))}
        self._large = [one for one in requests if one.block not in small]
        self._stream = next((one.stream for one in self._large if one.bytes), 0)
        self.small_bytes = self._most(True, [one for one in requests if one.block in small])
        self.begin_bytes = self._most(False, [])

    def _most(self, small: bool, requests: Sequence[Request]) -> int:
        runs = tuple(run for run in self._held.runs if run.small == small)
        return replay(requests, self._settings, runs=runs).reserved_peak

    def with_arena(self, within_bytes: int) -> int:
        """What segments that do not grow hold, where one for all large requests takes what is left of so many bytes."""
        room = within_bytes - self.small_bytes - self.begin_bytes
        room -= room % SMALL_SEGMENT
        first = [Request(ARENA, room, self._stream), Request(ARENA, 0)] if room >= LEAST_OWN_SEGMENT else []
        return self.small_bytes + self._most(False, [*first, *self._large])

    @cached_property
    def alone(self) -> int:
        """What segments hold without one for all."""
        return self.small_bytes + self._most(False, self._large)

    def within(self, budget_bytes: int) -> Taken:
        """How a budget is kept; where it is not, the least that is."""
        if not self._settings.expandable:
            lent = self.with_arena(budget_bytes)
            if lent <= budget_bytes:
                return Taken(lent, self.small_bytes, budget_bytes)
            if self.alone > budget_bytes:
                return self.least()
        return Taken(self.alone, self.small_bytes, None)

    def least(self) -> Taken:
        """The least budget that is kept, of those that halving tries: with a smaller arena less may be enough."""
        low, high, lends = self.small_bytes + self.begin_bytes, self.alone, False
        while high - low > SMALL_SEGMENT:
            middle = (low + high) // 2
            if self.with_arena(middle) <= middle:
                high, lends = middle, True
            else:
                low = middle
        return Taken(high, self.small_bytes, high if lends else None)


def _twice(asked: Sequence[Request], there: dict[int, int]) -> list[Request]:
    """The requests of two passes: the second finds what the first one found, and nothing that the first one made."""
    left: dict[int, None] = {}
    gone: list[int] = []
    for block, size, _ in asked:
        if size:
            left[block] = None
        elif block in left:
            del left[block]
        else:
            gone.append(block)
    fresh = 1 + max((one.block for one in asked), default=0)
    stream = next((one.stream for one in asked if one.bytes), 0)
    name = {block: fresh + number for number, block in enumerate(gone)}
    between = [Request(block, 0) for block in left] + [Request(name[block], there[block], stream) for block in gone]
    second = fresh + len(gone)
    again = [one._replace(block=name.get(one.block, one.block + second)) for one in asked]
    return [*asked, *between, *again]
