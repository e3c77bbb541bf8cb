"""The least device memory of a `layout` problem: exact where the host has room, else enclosed (formats.md 8.12)."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from solvers.check.layout.buffers import bound_to_buffers, passes_of
from solvers.ir.layout import LayoutBlock, LayoutProblem

LABELS = 500_000
"""The most partial answers that the walk over the blocks holds; beyond, it gives up for the bound of `_window_peak`."""


@dataclass(frozen=True)
class Activations:
    """Policies that have this activation peak and put that much into host memory."""

    peak_bytes: int
    swapped_bytes: int


def least_device_bytes(problem: LayoutProblem) -> tuple[int, int]:
    """At least and at most how many bytes of device memory the best decision for the problem's host memory needs.

    With nothing persistent the device needs least, since keeping a chunk saves at most its one buffer; the host then
    needs most. Where it has less, more chunks are kept, the first ones first, until the rest fits: what that needs is
    enough.
    """
    always = tuple(range(len(problem.chunks)))
    roomy = Activations(_resident_peak(problem), 0)
    best = _least_peak(problem, roomy.peak_bytes)
    peak = _window_peak(problem) if best is None else best.peak_bytes
    at_least = problem.fixed_bytes + least_buffers(problem, ()) * problem.chunk_bytes + peak
    enough = []
    for choice in (roomy,) if best is None else (best, roomy):
        for kept in range(len(problem.chunks) + 1):
            host = sum(chunk.host_bytes for chunk in problem.chunks[kept:]) + choice.swapped_bytes
            if host <= problem.host_bytes:
                chunks = _chunk_bytes(problem, always[:kept])
                enough.append(problem.fixed_bytes + chunks + choice.peak_bytes)
                break
    return at_least, min(enough)


def is_feasible(problem: LayoutProblem) -> bool:
    """Whether the device surely has the memory that some decision needs."""
    return least_device_bytes(problem)[1] <= problem.device_bytes


def _chunk_bytes(problem: LayoutProblem, persistent: tuple[int, ...]) -> int:
    """Persistent chunks with their states, and the buffers that the others need at least."""
    states = sum(problem.chunks[chunk].persistent_bytes for chunk in persistent)
    return (len(persistent) + least_buffers(problem, persistent)) * problem.chunk_bytes + states


def least_buffers(problem: LayoutProblem, persistent: tuple[int, ...]) -> int:
    """The fewest buffers that hold what is in buffers at once, beside these persistent chunks."""
    return max(len(bound) for bound in bound_to_buffers(problem, passes_of(problem, persistent)))


def _stay(block: LayoutBlock) -> int:
    """The least that a block holds on the device without swapping."""
    return min(block.activation_bytes, block.input_bytes) if block.choice else block.activation_bytes


def _needs(block: LayoutBlock, stay: int) -> int:
    """The most that a block needs itself, in its forward with what it lets stay, or in its backward."""
    return max(stay + block.forward_transient_bytes, block.activation_bytes + block.backward_transient_bytes)


def _resident_peak(problem: LayoutProblem) -> int:
    """The activation peak of the best policies that swap nothing."""
    before = accumulate((_stay(block) for block in problem.blocks), initial=0)
    return max(held + _needs(block, _stay(block)) for held, block in zip(before, problem.blocks, strict=False))


def _window_peak(problem: LayoutProblem) -> int:
    """No policies have a lower peak: in each pass all blocks are taken at their least for this pass."""
    least = [_stay(block) for block in problem.blocks]
    peaks = []
    for j, block in enumerate(problem.blocks):
        near = range(max(0, j - problem.interval), j)
        far = (least[i] for i in range(near.start) if not problem.blocks[i].choice)
        peaks.append(sum(least[i] for i in near) + sum(far) + _needs(block, least[j]))
    return max(peaks)


def _least_peak(problem: LayoutProblem, limit: int) -> Activations | None:
    """The lowest peak of any policies, `limit` at most, walking over the blocks; None where there are too many cases.

    What matters of the blocks so far: which of the last `interval` ones are swapped (their bytes count until then),
    the bytes that stay, the peak, and the bytes swapped out. Of two cases alike in the first, one that is not better
    in bytes that stay nor in the peak is dropped.
    """
    cases: dict[tuple[int, ...], list[tuple[int, int, int]]] = {(): [(0, 0, 0)]}
    looked_at = 0
    for block in problem.blocks:
        found: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
        for window, labels in cases.items():
            for stay, peak, swapped in labels:
                before = stay + sum(window)
                for more, leaving in _options(block):
                    higher = max(peak, before + _needs(block, more + leaving))
                    if higher <= limit:
                        later = (*window, leaving)[-problem.interval :]
                        found.setdefault(later, []).append((stay + more, higher, swapped + leaving))
        cases = {window: _best(labels) for window, labels in found.items()}
        looked_at += sum(map(len, cases.values()))
        if looked_at > LABELS:
            return None
    _, peak, swapped = min((label for labels in cases.values() for label in labels), key=lambda case: case[1:])
    return Activations(peak, swapped)


def _options(block: LayoutBlock) -> list[tuple[int, int]]:
    """What stays of a block and what leaves it: nothing leaves, or all does."""
    leaving = [(0, block.activation_bytes)] if block.choice else []
    return [(_stay(block), 0), *leaving]


def _best(labels: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Those that no other beats in bytes that stay and peak."""
    best: list[tuple[int, int, int]] = []
    for label in sorted(labels):
        if not best or label[1] < best[-1][1]:
            best.append(label)
    return best
