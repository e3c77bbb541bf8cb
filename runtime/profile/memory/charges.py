"""What launching and running takes, by the pass that it belongs to; of devices that tell."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from runtime.device.native import load
from solvers.timeline.cost import NOTHING, Cost, together

Stage = Literal["forward", "behind", "recompute", "rest", "backward", "ahead", "turn"]
"""Of a block: its forward and what runs behind it, its recomputation until the last save and its rest, its backward and
what runs behind that. `turn` is backward before any block."""
Key = tuple[Stage, int]
Segment = tuple[Cost, str | None]
"""Work, and the parameter whose gradient is complete after it, if any."""


class Charges:
    """Costs in their order, charged to whatever `to` has named last."""

    def __init__(self, device: torch.device) -> None:
        self.tells = device.type == "sim"
        self._read = load("runtime._sim").read_launches if self.tells else None
        self._segments: dict[Key, list[Segment]] = defaultdict(list)
        self._key: Key | None = None

    def to(self, key: Key | None) -> None:
        """What was launched since the last call is charged; what is launched from now on is for this (None: nobody)."""
        self._charge(None)
        self._key = key

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is launched inside is for nobody."""
        key = self._key
        self.to(None)
        yield
        self.to(key)

    def saved(self, block: int) -> None:
        """The recomputation of a block has saved something: all of it so far is needed."""
        self.to(("rest", block))
        self._segments["recompute", block] += self._segments.pop(("rest", block), [])

    def complete(self, parameter: str) -> None:
        """A gradient is complete now."""
        self._charge(parameter)

    def _charge(self, parameter: str | None) -> None:
        if self._read is None:
            return
        cost = self.cost_so_far()
        if self._key is not None and (cost.launch_ns or parameter is not None):
            self._segments[self._key].append((cost, parameter))

    def cost_so_far(self) -> Cost:
        """What was launched since the last call of `to`; for a key that is None, too."""
        assert self._read is not None, "asked of a device that tells"
        device_ns, launch_ns, end_ns, waits, *_ = self._read()
        return Cost(device_ns, launch_ns, end_ns, waits > 0)

    def of(self, *keys: Key) -> tuple[Segment, ...] | None:
        """What was charged to these, one after the other; None where the device does not tell."""
        return tuple(one for key in keys for one in self._segments.get(key, ())) if self.tells else None

    def cost(self, *keys: Key) -> Cost | None:
        """The same as one."""
        found = self.of(*keys)
        return None if found is None else together([cost for cost, _ in found] or [NOTHING])
