"""What a profiled step asked of an allocator that holds segments, and what that allocator held (formats.md 9.4)."""

from typing import Annotated

import msgspec

from solvers.ir.fields import Bytes, Index, Record, TensorId, require

Stream = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


class HeldRun(Record, frozen=True, kw_only=True):
    """Memory from `address` on that the allocator holds for a stream, in blocks: bytes, and whether they are in use.

    Where segments are `expandable`, a run is what is mapped without a gap. Addresses count from the lowest one held.
    """

    address: Bytes
    stream: Stream
    small: bool
    expandable: bool
    blocks: tuple[tuple[Bytes, bool], ...]


class StepRequests(Record, frozen=True, kw_only=True):
    """Requests and frees of a step that comes again and again, on an allocator of these settings.

    `runs` were held when the profiled step had ended: what the next one finds. `events[i]` is (block, bytes, stream,
    op): a request of that many bytes or, with 0, the block's free, during operator op or, where op is −1 − n, between
    two, when n had begun. Block n ≥ 0 is one that the step takes, block −1 − a the one in use at address a of `runs`.
    `block_of`: the block of each tensor that the step made. `carried`: (block that the step finds and frees, block that
    it leaves in its place).
    """

    expandable: bool = False
    max_split_bytes: Bytes | None = None
    most_rounding_bytes: Bytes = 20 << 20
    runs: tuple[HeldRun, ...] = ()
    events: tuple[tuple[int, Bytes, Stream, int], ...] = ()
    block_of: tuple[tuple[TensorId, Index], ...] = ()
    carried: tuple[tuple[int, Index], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a block that is freed without being there, or taken twice."""
        live = {-1 - address for address in in_use(self.runs)}
        for number, (block, size, _, _) in enumerate(self.events):
            require(
                (block in live) == (size == 0),
                f"requests.events[{number}] {'takes' if size else 'frees'} block {block}, which is "
                f"{'' if size else 'not '}in use then: correct its number",
            )
            live ^= {block}


def in_use(runs: tuple[HeldRun, ...]) -> dict[int, int]:
    """The blocks in use by address: their bytes."""
    found = {}
    for run in runs:
        address = run.address
        for size, used in run.blocks:
            if used:
                found[address] = size
            address += size
    return found
