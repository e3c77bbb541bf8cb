"""Pipelines for the tests of whole steps: one in which everything happens, and random ones of any shape."""

import random

from solvers.ir import LayerOp, PipelineProblem, PipelineStage, Window
from solvers.ir.pipeline import PassOrder


def busy_problem() -> PipelineProblem:
    """Three stages of three layers: little memory, windows in both passes, embedding, head and slow messages."""
    sizes = (6, 9, 4, 8)
    ops = tuple(
        LayerOp(name=f"op{i}", time_us=10, output_bytes=size, inputs=(i - 1,) if i else (), comm=i == 2, needed=i != 2)
        for i, size in enumerate(sizes)
    )
    own = PipelineStage(budget_bytes=110, static_bytes=5, layer_static_bytes=2, extra_us=(0, 0))
    ends = PipelineStage(budget_bytes=130, static_bytes=5, layer_static_bytes=2, extra_us=(7, 9), extra_bytes=3)
    return PipelineProblem(
        name="busy",
        layers=9,
        microbatches=5,
        order="1f1b",
        p2p_us=4,
        layer_input_bytes=2,
        ops=ops,
        windows=(Window(name="f", phase="forward", time_us=10), Window(name="b", phase="backward", time_us=10)),
        backward_us=75,
        stages=(ends, own, ends),
    )


def random_step(seed: int) -> PipelineProblem:
    """One to five stages of up to thirteen layers, three to eight ops, up to two and three windows, any budget."""
    source = random.Random(seed)
    depth, count = source.randint(1, 5), source.randint(3, 8)
    layers = depth + source.randint(0, 8)
    ops = tuple(_op(source, i) for i in range(count))
    forward = source.choice([0, 1, 2, 2])
    phases = ["forward"] * forward + ["backward"] * source.choice([forward, forward, source.randint(0, 3)])
    order: PassOrder = source.choice(["1f1b", "1f1b", "1f1b", "gpipe"])
    whole = sum(op.output_bytes for op in ops) * layers / depth
    return PipelineProblem(
        name=f"random {seed}",
        layers=layers,
        microbatches=source.randint(1, 8),
        order=order,
        p2p_us=source.choice([0, 3, 50]),
        layer_input_bytes=source.randint(0, 6),
        ops=ops,
        windows=tuple(Window(name=phase, phase=phase, time_us=source.randint(1, 30)) for phase in phases),  # type: ignore[arg-type]
        backward_us=source.randint(90, 300),
        stages=tuple(_stage(source, whole) for _ in range(depth)),
    )


def _op(source: random.Random, i: int) -> LayerOp:
    return LayerOp(
        name=f"op{i}",
        time_us=source.randint(1, 40),
        output_bytes=source.randint(1, 20),
        inputs=tuple(j for j in range(max(0, i - 3), i) if source.random() < 0.6),
        comm=source.random() < 0.25,
        needed=source.random() < 0.8,
    )


def _stage(source: random.Random, whole: float) -> PipelineStage:
    return PipelineStage(
        budget_bytes=int(whole * source.choice([1, 2, 4]) * source.uniform(0.2, 1.2)) + 10,
        static_bytes=source.randint(0, 9),
        layer_static_bytes=source.randint(0, 3),
        extra_us=(source.choice([0, 20]), source.choice([0, 40])),
        extra_bytes=source.choice([0, 5]),
    )
