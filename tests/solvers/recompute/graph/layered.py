"""Small transformers as `recompute-graph` problems: the workload's own layers at a position between least and most."""

from functools import cache

from msgspec.structs import replace

from solvers.ir import RecomputeGraphProblem, RecomputeOp
from solvers.recompute.graph.least import least_budget_bytes
from solvers.recompute.graph.replay import instance, replay

Rows = tuple[tuple[str, int, int, tuple[int, ...], bool], ...]
# name, time, bytes, inputs in the layer (−1: the layer's input), communication
FORWARD: Rows = (
    ("norm", 10, 64, (-1,), False),
    ("qkv", 66, 96, (0,), False),
    ("scores", 46, 256, (1,), False),
    ("dropout", 90, 384, (2,), False),
    ("context", 46, 32, (1, 3), False),
    ("all-reduce", 70, 64, (4,), True),
    ("add", 18, 96, (-1, 5), False),
    ("fc", 60, 128, (6,), False),
    ("out", 25, 64, (6, 7), False),
)
# name, time, bytes, forward ops read, communication; each reads the one before it
BACKWARD: Rows = (
    ("out'", 50, 128, (7,), False),
    ("fc'", 120, 64, (6,), False),
    ("all-reduce'", 70, 64, (), True),
    ("context'", 90, 256, (1, 3), False),
    ("dropout'", 80, 256, (3, 2), False),
    ("scores'", 92, 96, (1,), False),
    ("qkv'", 130, 64, (0,), False),
    ("all-reduce''", 70, 64, (), True),
    ("norm'", 20, 64, (-1,), False),
)


@cache
def unlimited(layers: int) -> RecomputeGraphProblem:
    """Embedding, layers forward, loss, layers backward, with a budget that fits everything."""
    ops = [RecomputeOp(name="embedding", time_us=5, output_bytes=64, inputs=(), comm=False)]
    inputs, starts = [0], []
    for _ in range(layers):
        start = len(ops)
        starts.append(start)
        for name, time, size, read, comm in FORWARD:
            earlier = tuple(sorted(inputs[-1] if j < 0 else start + j for j in read))
            ops.append(RecomputeOp(name=name, time_us=time, output_bytes=size, inputs=earlier, comm=comm))
        inputs.append(len(ops) - 1)
    ops.append(RecomputeOp(name="loss", time_us=10, output_bytes=64, inputs=(inputs[-1],), comm=False))
    for layer in reversed(range(layers)):
        for name, time, size, read, comm in BACKWARD:
            sources = {inputs[layer] if j < 0 else starts[layer] + j for j in read} | {len(ops) - 1}
            ops.append(
                RecomputeOp(name=name, time_us=time, output_bytes=size, inputs=tuple(sorted(sources)), comm=comm)
            )
    return RecomputeGraphProblem(name=f"{layers} layers", budget_bytes=10**9, static_bytes=0, ops=tuple(ops))


def least_and_most(problem: RecomputeGraphProblem) -> tuple[int, int]:
    """The largest working set, and the peak with nothing computed again."""
    nothing: list[set[int]] = [set() for _ in problem.ops]
    return least_budget_bytes(problem), replay(instance(replace(problem, budget_bytes=10**12)), nothing).peak_bytes


def transformer(layers: int, position: float) -> RecomputeGraphProblem:
    """A transformer whose budget lies so far between what it needs at least and what it can use."""
    problem = unlimited(layers)
    least, most = least_and_most(problem)
    return replace(problem, budget_bytes=int(least + position * (most - least)))
