"""How much memory a program needs: its peak, and what it needs at once, however much is swapped."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import torch

from runtime.device.native import core
from runtime.profile.recording import detailed_recording
from tests.runtime.swap.fuzz.program import Program
from tests.runtime.swap.fuzz.training import Loop, Trace

LEAST_BYTES = 4096
"""Smaller storages stay on the device in a session."""
BLOCK = 512


class Need(NamedTuple):
    """Bytes: the most with nothing swapped, and the most that no swapping can take away."""

    peak_bytes: int
    floor_bytes: int


def reference_run(program: Program, device: torch.device) -> tuple[Trace, Need]:
    """The program with all memory, everything it leaves behind read after each iteration, and what it needed."""
    loop, trace = Loop(replace(program, watched=True), device), Trace()
    peak = floor = 0
    for number in range(len(program.turns)):
        with detailed_recording(device) as recorder:
            loop.run_turn(number, trace)
        operators, storages = recorder.operators(), recorder.storages()
        peak = max([peak, *(record.peak_bytes for record in operators)])
        floor = max([floor, *_floors(operators, storages, gradients_stay=program.beside in ("makes", "new streams"))])
    return trace, Need(peak, min(peak, floor + _lent_bytes(program)))


def _lent_bytes(program: Program) -> int:
    """At most so much stays on the device because another thread has used it."""
    if program.beside != "thread":
        return 0
    hidden = max(turn.rows * turn.length for turn in program.turns) * program.width * 4 + BLOCK
    return hidden * len(program.parts) * program.accumulation


def _floors(
    operators: Sequence[core.OperatorRecord], storages: Sequence[core.StorageRecord], *, gradients_stay: bool
) -> list[int]:
    """Memory during each operator, less the large storages that are surely alive, known and not touched by it.

    A session knows what was there before the iteration, and what an operator was given (not yet what one returned).
    Where autograd works on several streams, what a backward pass makes stays.
    """
    known, last = dict[int, int](), dict[int, int]()
    touched = [{*record.inputs, *record.outputs, *record.written} for record in operators]
    for place, record in enumerate(operators):
        known = dict.fromkeys(record.inputs, place) | known
        last |= dict.fromkeys(touched[place], place)
    spans = [
        (-1 if storage.born is None else known[name], last[name], -(-storage.bytes // BLOCK) * BLOCK, name)
        for name, storage in enumerate(storages)
        if name in last and (name in known or storage.born is None) and storage.bytes >= LEAST_BYTES
        if not (gradients_stay and storage.born is not None and operators[storage.born].range == "backward")
    ]
    unused = [0] * (len(operators) + 1)
    for first, end, size, _ in spans:
        if first < end - 1:
            unused[first + 1] += size
            unused[end] -= size
    alive = {name: (first, end, size) for first, end, size, name in spans}
    return [
        record.peak_bytes - between + sum(_between(place, alive[name]) for name in touched[place] if name in alive)
        for place, (record, between) in enumerate(zip(operators, accumulate(unused), strict=False))
    ]


def _between(place: int, span: tuple[int, int, int]) -> int:
    """A storage's bytes where an operator stands between its first and last one, or 0."""
    first, end, size = span
    return size if first < place < end else 0
