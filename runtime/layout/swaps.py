"""Activations of swapped blocks on the lanes that chunks travel on: out behind forward, in before backward.

The swap engine moves them, so that whatever uses one meanwhile brings it back.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from runtime.blocks.policies import AtOnce
from runtime.device.native import core
from runtime.layout.log import Log
from runtime.storage.access import may_leave


class Swaps(AtOnce):
    """Moves of storages, by number of their block's call in the step; `begins` is told when its backward does."""

    def __init__(self, log: Log, begins: Callable[[int], None]) -> None:
        self._log, self._begins = log, begins
        self._into, self._out = core.copy_lanes(log.device)
        self._coming: dict[int, Sequence[Tensor]] = {}

    def begin_step(self) -> None:
        """What an earlier step asked for and did not come to use is let go."""
        self._coming.clear()

    def leaving(self, number: int, tensors: Sequence[Tensor]) -> None:
        """A block's forward is launched: copy these behind it."""
        movable = list(filter(may_leave, tensors))
        if not movable:
            return
        self._out.wait_event(torch.accelerator.current_stream(self._log.device).record_event())
        with self._log.on(self._out, "out", "swap-out", number + 1):
            for tensor in movable:
                core.begin_swap_out(tensor)

    def send(self, tensor: Tensor) -> None:
        """Give the bytes back: behind their copy, or, of what has not left yet, with every wait at once."""
        if core.is_out(tensor):
            core.give_block_back(tensor)
        else:
            super().send(tensor)

    def begins(self, number: int) -> None:
        """Loads that are due then come before activations."""
        self._begins(number)

    def fetch(self, number: int, tensors: Sequence[Tensor]) -> None:
        """Bring them back, beside what runs meanwhile."""
        if number in self._coming:
            return
        away = [one for one in tensors if core.is_out(one)]
        self._coming[number] = away
        if away:
            with self._log.on(self._into, "in", "swap-in", number + 1):
                core.begin_swap_in(away)

    def arrived(self, number: int) -> None:
        """A block's backward begins: what it saved is there for what is launched from now on."""
        for tensor in self._coming.pop(number, ()):
            core.arrive(tensor)
