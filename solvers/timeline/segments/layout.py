"""An allocator that holds something already: its segments, and the blocks in them."""

from collections.abc import Iterable

from solvers.ir.requests import HeldRun
from solvers.timeline.segments.allocator import Segments
from solvers.timeline.segments.blocks import Block
from solvers.timeline.segments.settings import LARGE_SEGMENT, SegmentSettings


def laid_out(runs: Iterable[HeldRun], settings: SegmentSettings) -> tuple[Segments, dict[int, Block]]:
    """The allocator that holds these runs less what is wholly free, and the blocks in use by number (−1 − address).

    Runs of expandable segments lie in one range for each stream and pool, as if none had been full yet. Runs of the
    other kind than the settings', from before these changed, serve no new requests.
    """
    device = Segments(settings)
    live: dict[int, Block] = {}
    shifts: dict[tuple[int, bool], tuple[int, Block]] = {}
    for run in sorted(runs, key=lambda run: run.address):
        key = (run.stream, run.small)
        if run.expandable and key in shifts:
            shift, before = shifts[key]
            blocks = device.adopt(run, run.address + shift, before)
        else:
            shift = -run.address % LARGE_SEGMENT if run.expandable else 0  # a range begins at a whole page
            blocks = device.adopt(run, run.address + shift, None)
        if run.expandable:
            shifts[key] = shift, blocks[-1]
        used = (block for block, (_, in_use) in zip(blocks, run.blocks, strict=True) if in_use)
        live.update((-1 - (block.address - shift), block) for block in used)
    if settings.expandable:
        for _, block in shifts.values():
            device.extend(block)
    device.release_cached()
    device.statistics.begin()
    return device, live
