"""Kernels of known size that show how fast a device computes and moves its memory."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from runtime.profile.clocks import CallClock, settled_s
from runtime.profile.samples import sample

MOST_WALL_S = 0.1
"""Sizes stop growing when one call takes this long on the wall's clock: the simulated device really computes."""
QUICK_WALL_S = 0.001
"""A call that takes longer on either clock is timed once."""
REPEATS = 2
"""Calls of a run, at the least,"""
QUICK_REPEATS = 20
"""and where a call costs the host next to nothing: a few would be lost in what disturbs it."""
RUN_S = 0.02
"""What a run that counts takes at the least, unless that needs more than `MOST_REPEATS` calls."""
MOST_REPEATS = 50
GAIN = 1.02
"""A larger size is worth its time while it raises the rate by this factor."""
STALE = 2
"""Sizes in a row that raise it no more, after which none is tried."""


class Work(NamedTuple):
    """A call whose arithmetic or memory traffic is known; the other of the two must be negligible on any device."""

    call: Callable[[], object]
    amount: int


def rate_per_s(build: Callable[[int], Work], clock: CallClock, sizes: Sequence[int]) -> int:
    """Work per second at the size of the best rate; sizes grow while the rate does, and twice beyond.

    Sizes whose calls are shorter than the clock can tell say nothing, except where there are no others.
    """
    best, stale = 0.0, 0
    chosen: tuple[Work, _Timed] | None = None
    for size in sizes:
        try:
            work = build(size)
            timed = _timed(work.call, clock)
        except torch.OutOfMemoryError:  # on a small device the size before has to do
            break
        rate, told = work.amount / timed.seconds, timed.seconds >= clock.shortest_s
        stale = stale + 1 if told and rate < GAIN * best else 0
        if chosen is None or best == 0.0 or (told and rate > best):
            chosen = work, timed
        best = max(best, rate) if told else best
        if timed.wall_s > MOST_WALL_S or stale == (1 if timed.slow else STALE):
            break
    if chosen is None:
        raise torch.OutOfMemoryError(f"not even size {sizes[0]} has room on the device")
    work, timed = chosen
    return max(round(work.amount / settled_s(clock, work.call, _repeats(max(timed.wall_s, timed.seconds)))), 1)


class _Timed(NamedTuple):
    """Seconds of a call on the wall's clock, and on the device's."""

    wall_s: float
    seconds: float

    @property
    def slow(self) -> bool:
        return self.wall_s > QUICK_WALL_S


def _timed(call: Callable[[], object], clock: CallClock) -> _Timed:
    wall_s = _wall_s(call)
    if wall_s > MOST_WALL_S:  # the first call may load a library
        wall_s = _wall_s(call)
    seconds = clock.per_call_s(call, REPEATS, 1)
    if max(wall_s, seconds) <= QUICK_WALL_S:
        seconds = clock.per_call_s(call, QUICK_REPEATS)
    return _Timed(wall_s, seconds)


def _wall_s(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _repeats(call_s: float) -> int:
    """Calls that make a run long enough to be told from noise."""
    return max(REPEATS, min(MOST_REPEATS, round(RUN_S / call_s)))


def matmul(device: torch.device, dtype: torch.dtype) -> Callable[[int], Work]:
    """Square matrix products: operations."""

    def build(size: int) -> Work:
        left, right, out = (sample((size, size), device, dtype) for _ in range(3))
        return Work(lambda: torch.mm(left, right, out=out), 2 * size**3)

    return build


def matrix_vector(device: torch.device) -> Callable[[int], Work]:
    """A matrix times a vector: bytes, nearly all of the matrix."""

    def build(size: int) -> Work:
        matrix, vector, out = sample((size, 1024), device), sample((1024,), device), sample((size,), device)
        return Work(lambda: torch.mv(matrix, vector, out=out), 4 * (size * 1024 + 1024 + size))

    return build


def attention(device: torch.device, dtype: torch.dtype) -> Callable[[int], Work]:
    """Attention without a mask: operations."""

    def build(size: int) -> Work:
        query, key, value = (sample((1, 4, size, 128), device, dtype) for _ in range(3))
        return Work(lambda: F.scaled_dot_product_attention(query, key, value), 4 * 4 * size * size * 128)

    return build


def convolution(device: torch.device, dtype: torch.dtype) -> Callable[[int], Work]:
    """A 3 × 3 convolution that keeps its size: operations."""

    def build(size: int) -> Work:
        image, kernel = sample((1, 128, size, size), device, dtype), sample((128, 128, 3, 3), device, dtype)
        return Work(lambda: F.conv2d(image, kernel, padding=1), 2 * size * size * 128 * 128 * 9)

    return build


def elementwise(device: torch.device) -> Callable[[int], Work]:
    """A product: bytes read and written. Not in place, where repeated products would end in constants."""

    def build(size: int) -> Work:
        values, factors, out = (sample((size,), device) for _ in range(3))
        return Work(lambda: torch.mul(values, factors, out=out), 3 * 4 * size)

    return build


def reduction(device: torch.device) -> Callable[[int], Work]:
    """A sum over rows: bytes read."""

    def build(size: int) -> Work:
        values, out = sample((size // 1024, 1024), device), sample((size // 1024,), device)
        return Work(lambda: torch.sum(values, 1, out=out), 4 * (size + size // 1024))

    return build


def copy(device: torch.device) -> Callable[[int], Work]:
    """A copy within the device: bytes read and written."""

    def build(size: int) -> Work:
        source, target = (sample((size,), device) for _ in range(2))
        return Work(lambda: target.copy_(source), 2 * 4 * size)

    return build
