"""A 32-layer Llama-2-like swap instance, by formulas and roofline; nothing in it was measured.

Shapes of Llama-2 7B (hidden 4096, feed-forward 11008, 32 heads, 32 layers), one sequence of 4096 tokens in 16 bits.
Times are roofline times at 156 TFLOP/s and 1.3 TB/s (an A100's peak at stated efficiencies). Each layer leaves 20
tensors for its backward pass; the budget and the host link are arguments.
"""

from dataclasses import dataclass
from itertools import pairwise

from solvers.ir.graph import Phase
from solvers.ir.swap import SwapLink, SwapOp, SwapProblem, SwapTensor

FLOPS_PER_S = 156e12
BYTES_PER_S = 1.3e12
HIDDEN, FEED, HEADS, TOKENS, WIDTH = 4096, 11008, 32, 4096, 2
SMALL = TOKENS * HIDDEN * WIDTH
LARGE = TOKENS * FEED * WIDTH
STATISTICS = TOKENS * 4
SOFTMAX = TOKENS * HEADS * 4


@dataclass(frozen=True)
class LayerStep:
    """One forward operator of a layer: its work, what it leaves for the backward pass, its number of backward ops."""

    name: str
    flops: float
    moved: int
    saved: tuple[int, ...]
    backward: int = 1


def _matmul(rows: int, inner: int, columns: int) -> float:
    return 2.0 * rows * inner * columns


def _linear(name: str, inner: int, columns: int, saved: tuple[int, ...]) -> LayerStep:
    moved = WIDTH * (TOKENS * inner + inner * columns + TOKENS * columns)
    return LayerStep(name, _matmul(TOKENS, inner, columns), moved, saved, backward=2)


STEPS = (
    LayerStep("norm1.square", 0, 2 * SMALL, (SMALL,)),
    LayerStep("norm1.scale", 0, 2 * SMALL, (STATISTICS, SMALL)),
    _linear("attention.q", HIDDEN, HIDDEN, (SMALL,)),
    _linear("attention.k", HIDDEN, HIDDEN, ()),
    _linear("attention.v", HIDDEN, HIDDEN, (SMALL,)),
    LayerStep("rotary.q", 0, 3 * SMALL, (SMALL,)),
    LayerStep("rotary.k", 0, 3 * SMALL, (SMALL,)),
    LayerStep("attention.core", 4.0 * TOKENS * TOKENS * HIDDEN, 4 * SMALL, (SMALL, SOFTMAX), backward=1),
    _linear("attention.out", HIDDEN, HIDDEN, (SMALL,)),
    LayerStep("residual1", 0, 3 * SMALL, (SMALL,)),
    LayerStep("norm2.square", 0, 2 * SMALL, (SMALL,)),
    LayerStep("norm2.scale", 0, 2 * SMALL, (STATISTICS, SMALL)),
    _linear("mlp.gate", HIDDEN, FEED, (LARGE,)),
    _linear("mlp.up", HIDDEN, FEED, (LARGE,)),
    LayerStep("mlp.silu", 0, 2 * LARGE, (LARGE,)),
    LayerStep("mlp.multiply", 0, 3 * LARGE, (LARGE,)),
    _linear("mlp.down", FEED, HIDDEN, (SMALL,)),
    LayerStep("residual2", 0, 3 * SMALL, (SMALL,)),
)
"""18 operators that leave 20 tensors: 13 of hidden size, 4 of feed-forward size, 3 of statistics."""


def _microseconds(flops: float, moved: int) -> float:
    return 1e6 * max(flops / FLOPS_PER_S, moved / BYTES_PER_S)


def _whole(times_us: list[float]) -> list[int]:
    """Round cumulative time, so that rounding never adds up."""
    total, rounded = 0.0, [0]
    for time in times_us:
        total += time
        rounded.append(max(rounded[-1] + 1, round(total)))
    return [after - before for before, after in pairwise(rounded)]


def llama2(
    layers: int = 32,
    budget_fraction: float = 0.5,
    link_bytes_per_s: int = 24_000_000_000,
    latency_us: int = 10,
    static_bytes: int = 20 << 30,
    name: str | None = None,
) -> SwapProblem:
    """The instance: forward, backward and one optimizer op over `layers` layers.

    `budget_fraction` is the share of the activations' peak that fits beside the static bytes; the link is full duplex.
    """
    steps = [(layer, step) for layer in range(layers) for step in STEPS]
    forward = [(f"{layer}.{step.name}", _microseconds(step.flops, step.moved)) for layer, step in steps]
    backward: list[tuple[str, float]] = []
    starts: dict[int, int] = {}
    for number in reversed(range(len(steps))):
        layer, step = steps[number]
        starts[number] = len(forward) + len(backward)
        backward += [
            (f"{layer}.{step.name}.grad{part}", _microseconds(step.flops, step.moved)) for part in range(step.backward)
        ]
    optimizer = [("optimizer", _microseconds(0, static_bytes))]
    ops = forward + backward + optimizer
    passes: list[tuple[Phase, int]] = [("forward", len(forward)), ("backward", len(backward)), ("optimizer", 1)]
    phases = [phase for phase, count in passes for _ in range(count)]
    tensors, memory = _tensors(steps, starts, len(ops), static_bytes)
    times = _whole([time for _, time in ops])
    return SwapProblem(
        name=name or f"llama2-{layers}l-{budget_fraction:g}-{link_bytes_per_s // 10**9}GBps",
        budget_bytes=static_bytes + int(budget_fraction * (max(memory) - static_bytes)),
        ops=tuple(
            SwapOp(name=op, time_us=time, phase=phase) for (op, _), time, phase in zip(ops, times, phases, strict=True)
        ),
        memory_bytes=tuple(memory),
        tensors=tuple(tensors),
        link=SwapLink(out_bytes_per_s=link_bytes_per_s, in_bytes_per_s=link_bytes_per_s, latency_us=latency_us),
    )


def _tensors(
    steps: list[tuple[int, LayerStep]], starts: dict[int, int], count: int, static_bytes: int
) -> tuple[list[SwapTensor], list[int]]:
    """A step's output is read by the next step and kept until that step's backward ops have run."""
    change = [0] * (count + 1)
    tensors = []
    for number, (layer, step) in enumerate(steps):
        reader = min(number + 1, len(steps) - 1)
        freed = starts[reader] + steps[reader][1].backward
        for part, size in enumerate(step.saved):
            first = reader if reader > number else number
            tensors.append(
                SwapTensor(
                    id=f"{layer}.{step.name}.{part}",
                    bytes=size,
                    last_forward_use=first,
                    first_backward_use=starts[reader],
                )
            )
            change[number] += size
            change[freed] -= size
    workspace = 2 * LARGE
    memory, live = [], static_bytes + workspace
    for op in range(count):
        live += change[op]
        memory.append(live)
    return tensors, memory
