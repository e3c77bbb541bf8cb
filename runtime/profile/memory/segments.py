"""A complete trace of a step: what the device held between one hook and the next (ProTrain §3.2)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

Pass = Literal["forward", "recompute", "backward"]


@dataclass(frozen=True)
class Place:
    """Where a step is: in which pass, inside which block (None: outside), inside which hooked module (None: between).

    `ended` is the number of blocks whose forward has ended, or in backward of those whose backward has not begun.
    `recomputed` says in a block's backward that its activations are there.
    """

    run: Pass = "forward"
    block: int | None = None
    ended: int = 0
    module: str | None = None
    recomputed: bool = False


@dataclass(frozen=True)
class Segment:
    """What the device held from one hook to the next, in bytes, parameters and gradients included.

    `gradient_bytes` of it are gradients that this step has made so far. `needed` is False for the end of a
    recomputation whose results nobody saved: there it stops (early stop).
    """

    place: Place
    start_bytes: int
    peak_bytes: int
    end_bytes: int
    gradient_bytes: int = 0
    needed: bool = True


class Tape:
    """Cuts a running step into segments by the allocator's statistics, whose peak it resets.

    `away_bytes` tells what is off the device now and would be there in a plain step: segments count it as if it were.
    """

    def __init__(self, device: torch.device, away_bytes: Callable[[], int] = lambda: 0) -> None:
        self.device = device
        self.place = Place()
        self.segments: list[Segment] = []
        self.gradient_bytes = 0
        self._away = away_bytes
        self.restart()

    def restart(self) -> None:
        """Begin the next segment here, and forget what has happened since the last one ended."""
        torch.accelerator.reset_peak_memory_stats(self.device)
        self._away_start = self._away()
        self._start = torch.accelerator.memory_allocated(self.device)

    def cut(self, place: Place) -> None:
        """End the segment here; the next one is at `place`."""
        peak, end = torch.accelerator.max_memory_allocated(self.device), torch.accelerator.memory_allocated(self.device)
        away = self._away()
        start = self._start + self._away_start
        top = max(peak + min(away, self._away_start), start, end + away)
        self.segments.append(Segment(self.place, start, top, end + away, self.gradient_bytes))
        self.place = place
        self.restart()
