"""What a plan sends to the host and brings back while blocks run: storages of a tape, and what a block is given.

The swap engine moves them (`csrc/storage`), views and all. Whatever an operator reads that is away comes back first,
whether the plan foresaw it or not: the engine's guard sees to that, so a move can cost time but never a number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from runtime.device.native import core
from runtime.loop.nesting import active
from runtime.recompute.tape import Tape

Does = Literal["out", "release", "in", "arrive"]


@dataclass(frozen=True)
class Move:
    """One thing that is done to the storages of some values of a block's tape, or to what the block is given.

    `out`: they leave, behind what the stream holds now. `release`: their memory is given back behind their copy. `in`:
    they have memory again and return beside what runs. `arrive`: what runs from now on comes after their return.
    `given`: it is about these of what the block is given, by their places in `Region.given`, not about `values`.
    """

    does: Does
    block: int
    values: tuple[tuple[int, int], ...] = ()
    given: tuple[int, ...] = ()


class Region(Protocol):
    """A call of a block in a pass."""

    tape: Tape | None

    @property
    def given(self) -> Sequence[core.WeakBytes]:
        """What it was given, but what a block before it was."""


@dataclass
class MoveCounts:
    """Copies of storages since the session began, and bytes that left; `refused` could not leave.

    `postponed` found no memory when they were to return: they come when they are used.
    """

    swapped_out: int = 0
    swapped_in: int = 0
    refused: int = 0
    postponed: int = 0
    out_bytes: int = 0


class Mover:
    """Carries moves out on a device's lanes, in its session's order."""

    def __init__(self, device: torch.device, counts: MoveCounts) -> None:
        self._device, self.counts = device, counts
        self._out = core.copy_lanes(device)[1]

    def carry_out(self, move: Move, regions: Mapping[int, Region]) -> None:
        """Do it to what the tapes hold; what they do not hold, or what is not where it should be, stays as it is."""
        for tensor in _tensors(move, regions):
            if move.does == "out":
                self._send(tensor)
            elif not core.is_out(tensor):
                continue
            elif move.does == "release":
                core.give_block_back(tensor)
            elif move.does == "in":
                self._fetch(tensor)
            else:
                core.arrive(tensor)

    def _send(self, tensor: torch.Tensor) -> None:
        if core.why_it_stays(tensor) is not None:
            self.counts.refused += 1
            return
        self._out.wait_event(torch.accelerator.current_stream(self._device).record_event())
        core.begin_swap_out(tensor)
        self.counts.swapped_out += 1
        self.counts.out_bytes += tensor.untyped_storage().nbytes()

    def _fetch(self, tensor: torch.Tensor) -> None:
        try:
            self.counts.swapped_in += core.begin_swap_in([tensor])
        except torch.OutOfMemoryError:
            self.counts.postponed += 1


def _tensors(move: Move, regions: Mapping[int, Region]) -> Iterator[torch.Tensor]:
    """The storages that are meant, as far as there are any."""
    region = regions.get(move.block)
    if region is None:
        return
    if move.given:  # also before the block's tape begins
        there = (region.given[place].bytes() for place in move.given if place < len(region.given))
        yield from (tensor for tensor in there if tensor is not None)
        return
    tape = region.tape
    if tape is None:
        return
    end = len(tape) if tape.diverged_at is None else tape.diverged_at
    for node, place in move.values:
        held = tape.held(node) if node < end else []
        tensor = held[place] if place < len(held) else None
        if tensor is not None:
            yield tensor


def trim_host(device: torch.device) -> None:
    """Give a device's idle page-locked memory back to the system, unless a swapping session still uses it."""
    if active(device) is None:
        core.trim_host(device)
