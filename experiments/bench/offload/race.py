"""A race: every way in one process, one after the other, each on a device that nothing else is on."""

import time
from collections.abc import Callable, Sequence

from experiments.bench.offload.model import RaceShape
from experiments.bench.offload.planned import Plans
from experiments.bench.offload.run import Ran, Track, Way, run_way
from runtime.device import CachingAllocator


def race(
    device: str,
    shape: RaceShape,
    racing: Sequence[Way],
    plans: Plans | None = None,
    tell: Callable[[Ran], None] = lambda row: None,
    until: float = float("inf"),
    segments: CachingAllocator | None = None,
) -> list[Ran]:
    """A row for each way, the plain one first, which says what the others' budgets are shares of.

    Without a plain run sessions and plans have no budget, and are not run; nor is anything after `until`, on the clock
    of `time.monotonic`. `segments` are sim's rules of giving memory out; None: its mode `exact`.
    """
    track = Track(device, shape, plans or Plans(), segments)
    rows: list[Ran] = []
    for way in racing:
        plain = rows[0] if rows else None
        if time.monotonic() > until:
            row = Ran(way.name, error="not run: the time was over")
        elif way.share is not None and (plain is None or plain.reserved_bytes is None or plain.error is not None):
            row = Ran(way.name, error="not run: the plain run gave no peak to take a share of")
        else:
            row = run_way(track, way, plain)
        rows.append(row)
        tell(row)
    return rows
