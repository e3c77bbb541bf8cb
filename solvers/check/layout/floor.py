"""The base of `layout` problems: what no decision ends before, however much memory there is (formats.md 8.8)."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from fractions import Fraction

from solvers.ir.layout import LayoutChunk, LayoutProblem


def base_us(problem: LayoutProblem) -> int:
    """No decision ends sooner, with any memory: the later of what compute and cpu, and what the network, surely do.

    The network all-reduces a trainable chunk, or gathers it once at least and reduces it. Compute does all passes, and
    shares the updates with the cpu as evenly as parts of chunks can be: the device updates after the last backward; the
    cpu begins when the first gradients may have come to the host, or after the last backward where updates do not
    overlap. The least end of a share s_c of each update on the device is a linear program, whose dual has one price λ:
    max over λ of λ·device + (1−λ)·cpu + Σ min(λ·device_c, (1−λ)·cpu_c).
    """
    passes = sum(block.forward_us + block.backward_us for block in problem.blocks)
    trained = [chunk for chunk in problem.chunks if chunk.trainable]
    cpu = min([passes, *_gradients_on_host(problem)]) if problem.overlap_update else passes
    costs = Counter((chunk.device_update_us, chunk.cpu_update_us) for chunk in trained)

    def value(price: Fraction) -> Fraction:
        on_device, on_cpu = price.numerator, price.denominator - price.numerator
        shared = sum(count * min(on_device * a, on_cpu * b) for (a, b), count in costs.items())
        return Fraction(on_device * passes + on_cpu * cpu + shared, price.denominator)

    network = sum(min(chunk.allreduce_us, chunk.gather_us + chunk.reduce_us) for chunk in trained)
    places = {Fraction(0), Fraction(1), *(Fraction(b, a + b) for a, b in costs if a + b)}
    return max(network, math.ceil(peak_of(places, value)))


def peak_of(places: Collection[Fraction], value: Callable[[Fraction], Fraction]) -> Fraction:
    """The most of a concave function, which bends nowhere but at these places: it lies at one of them."""
    rising = sorted(places)
    most = bisect_left(range(len(rising) - 1), True, key=lambda n: value(rising[n]) >= value(rising[n + 1]))
    return value(rising[most])


def _gradients_on_host(problem: LayoutProblem) -> Iterator[int]:
    """When the gradients of each chunk may have come to the host: its first block has run backward by then."""
    clock = sum(block.forward_us for block in problem.blocks)
    first = {c: k for k, block in reversed(list(enumerate(problem.blocks))) for c in block.chunks}
    completed: list[list[LayoutChunk]] = [[] for _ in problem.blocks]
    for c, chunk in enumerate(problem.chunks):
        if chunk.trainable:
            completed[first[c]].append(chunk)
    for block, chunks in zip(reversed(problem.blocks), reversed(completed), strict=True):
        clock += block.backward_us
        for chunk in chunks:
            yield clock + chunk.reduce_us + chunk.offload_us
