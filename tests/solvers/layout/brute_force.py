"""Tiny layout problems, and the best decision by having the judge try every one."""

import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, product

from solvers.check.layout.judge import judge_layout
from solvers.ir import LayoutBlock, LayoutChunk, LayoutPlan, LayoutProblem
from solvers.ir.layout import POLICIES


def random_problem(seed: int) -> LayoutProblem:
    """At most four blocks and three chunks, traffic about as long as compute; memory from too little to ample."""
    source = random.Random(seed)
    ranks, count, blocks = source.choice([1, 2]), source.randint(1, 3), source.randint(2, 4)
    chunks = tuple(_chunk(source, ranks) for _ in range(count))
    uses: list[set[int]] = [{number * count // blocks} for number in range(blocks)]
    for index in range(count):
        uses[source.randrange(blocks) if source.random() < 0.3 else index * blocks // count].add(index)
    every = tuple(_block(source, tuple(sorted(used))) for used in uses)
    size = source.randint(1, 4)
    device = sum(size + chunk.persistent_bytes for chunk in chunks) + sum(b.activation_bytes for b in every) + 4
    host = sum(chunk.host_bytes for chunk in chunks) + sum(block.activation_bytes for block in every)
    return LayoutProblem(
        name=f"tiny {seed}",
        device_bytes=source.choice([device, source.randint(device // 2, device), source.randint(device // 3, device)]),
        host_bytes=host if source.random() < 0.8 else source.randint(0, host),
        ranks=ranks,
        fixed_bytes=source.randint(0, 2),
        chunk_bytes=size,
        interval=source.choice([1, 1, 2]),
        overlap_update=source.random() < 0.7,
        chunks=chunks,
        blocks=every,
    )


def _chunk(source: random.Random, ranks: int) -> LayoutChunk:
    trainable, several = source.random() < 0.85, ranks > 1
    return LayoutChunk(
        trainable=trainable,
        load_us=source.randint(0, 6),
        gather_us=source.randint(0, 4) * several,
        reduce_us=source.randint(0, 4) * several * trainable,
        offload_us=source.randint(0, 6) * trainable,
        cpu_update_us=source.randint(0, 9) * trainable,
        allreduce_us=source.randint(0, 8) * several * trainable,
        device_update_us=source.randint(0, 2) * trainable,
        persistent_bytes=source.randint(0, 6) * trainable,
        host_bytes=source.randint(1, 6),
    )


def _block(source: random.Random, chunks: tuple[int, ...]) -> LayoutBlock:
    return LayoutBlock(
        name="block",
        forward_us=source.randint(1, 6),
        backward_us=source.randint(1, 9),
        activation_bytes=source.randint(2, 9),
        input_bytes=source.randint(0, 3),
        forward_transient_bytes=source.randint(0, 2),
        backward_transient_bytes=source.randint(0, 3),
        chunks=chunks,
        swap_out_us=source.randint(0, 9),
        swap_in_us=source.randint(0, 9),
        choice=source.random() < 0.9,
    )


def decisions(problem: LayoutProblem) -> Iterator[LayoutPlan]:
    """Every set of persistent chunks, every count of buffers that can be used, all policies."""
    count = len(problem.chunks)
    options = [POLICIES if block.choice else ("keep",) for block in problem.blocks]
    for kept in range(count + 1):
        for persistent in combinations(range(count), kept):
            for buffers in range(count - kept + 1):
                for policies in product(*options):
                    yield LayoutPlan(persistent=persistent, buffers=buffers, policies=policies)


@lru_cache(maxsize=256)
def optimum(problem: LayoutProblem) -> int | None:
    """The least objective of any valid decision; None where there is none."""
    ends = (judge_layout(problem, plan).objective_us for plan in decisions(problem))
    return min((end for end in ends if end is not None), default=None)
