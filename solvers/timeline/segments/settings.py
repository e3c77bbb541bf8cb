"""The sizes that PyTorch's caching allocator works with, and what a user can set of it (`PYTORCH_ALLOC_CONF`).

Source of every rule of this package: PyTorch's `c10/cuda/CUDACachingAllocator.cpp` and `c10/core/AllocatorConfig.h`.
"""

from dataclasses import dataclass

from solvers.ir.fields import require

MIB = 1 << 20
SMALLEST_BLOCK = 512
"""Every request is rounded up to a multiple of this."""
MOST_SMALL = MIB
"""The largest rounded request that the pool of small blocks serves."""
SMALL_SEGMENT = 2 * MIB
"""What the small pool asks the driver for, and the page in which it grows an expandable segment."""
LARGE_SEGMENT = 20 * MIB
"""The same for requests of the large pool below `LEAST_OWN_SEGMENT`."""
LEAST_OWN_SEGMENT = 10 * MIB
"""A rounded request from here on gets a segment of its own size, rounded up to `SEGMENT_GRANULE`."""
SEGMENT_GRANULE = 2 * MIB
MOST_UNSPLIT_REST = MIB
"""A block of the large pool is split only where more than this remains."""


@dataclass(frozen=True, kw_only=True)
class SegmentSettings:
    """How the allocator is set, in bytes; the defaults are PyTorch's, on a device without end.

    - `device_bytes`: what the driver can give; a segment beyond it is refused.
    - `limit_bytes`: the share that `set_per_process_memory_fraction` allows. It is compared before the driver is asked,
      with the size of a whole segment, so that a growing expandable segment may pass it by less than a page.
    - `expandable`: `expandable_segments:True`.
    - `max_split_bytes`: `max_split_size_mb`; larger blocks are never split, and serve only requests that are about as
      large: less than `most_rounding_bytes` (`max_non_split_rounding_mb`) apart.
    - `pool_bytes`: the program began by requesting so much at once and giving it back, so that the allocator has one
      segment to cut blocks from; only steps (`held_by_steps`) are replayed with it.
    """

    device_bytes: int | None = None
    limit_bytes: int | None = None
    expandable: bool = False
    max_split_bytes: int | None = None
    most_rounding_bytes: int = LARGE_SEGMENT
    pool_bytes: int = 0

    def __post_init__(self) -> None:
        """Refuse what PyTorch refuses."""
        for name in ("device_bytes", "limit_bytes"):
            given = getattr(self, name)
            require(given is None or given >= 0, f"{name} is {given}: give 0 or more, or None for no end")
        least = LARGE_SEGMENT
        require(self.pool_bytes >= 0, f"pool_bytes is {self.pool_bytes}: give 0 for none, or more")
        split = self.max_split_bytes
        require(split is None or split > least, f"max_split_bytes is {split}: give more than {least}, as PyTorch asks")
        rounding = self.most_rounding_bytes
        require(rounding >= least, f"most_rounding_bytes is {rounding}: give at least {least}, as PyTorch asks")


def rounded(size: int) -> int:
    """The block that a request of `size` bytes takes, if a block can be cut to it."""
    return max(1, -(-size // SMALLEST_BLOCK)) * SMALLEST_BLOCK


def is_small(block: int) -> bool:
    """Whether the small pool serves a rounded request."""
    return block <= MOST_SMALL


def segment_bytes(block: int) -> int:
    """The segment that the driver is asked for on behalf of a rounded request."""
    if is_small(block):
        return SMALL_SEGMENT
    if block < LEAST_OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-block // SEGMENT_GRANULE) * SEGMENT_GRANULE
