"""ProTrain's four numbers in plain loops: an interleaved layout of our own, the judge for memory, times block by block.

Nothing of `solvers.layout` is used here, so that the search cannot agree with itself.
"""

import random
from collections.abc import Iterator

import msgspec

from solvers.check.layout.buffers import bound_to_buffers, passes_of
from solvers.check.layout.judge import device_peak, host_bytes, judge_layout
from solvers.ir import LayoutPlan, LayoutProblem
from solvers.ir.layout import Policy
from tests.solvers.layout.brute_force import random_problem

Numbers = tuple[int, int, int, int]


def policies_of(problem: LayoutProblem, swap: int, checkpoint: int) -> tuple[Policy, ...] | None:
    """Of the blocks with a choice the 1st, the (1 + interval)-th, … swap, `swap` of them; of the rest the first ones
    checkpoint; all others keep. None where there are not so many to swap or to checkpoint.
    """
    policies: list[Policy] = ["keep"] * len(problem.blocks)
    turn = 0
    for number, block in enumerate(problem.blocks):
        if not block.choice:
            continue
        if turn % problem.interval == 0 and swap:
            policies[number] = "swap"
            swap -= 1
        turn += 1
    for number, block in enumerate(problem.blocks):
        if block.choice and policies[number] == "keep" and checkpoint:
            policies[number] = "checkpoint"
            checkpoint -= 1
    return None if swap or checkpoint else tuple(policies)


def plan_of(problem: LayoutProblem, numbers: Numbers) -> LayoutPlan | None:
    """The decision that the four numbers stand for: the first chunks persist."""
    persist, buffers, swap, checkpoint = numbers
    policies = policies_of(problem, swap, checkpoint)
    if policies is None:
        return None
    return LayoutPlan(persistent=tuple(range(persist)), buffers=buffers, policies=policies)


def every_plan(problem: LayoutProblem) -> Iterator[tuple[Numbers, LayoutPlan]]:
    """All four numbers from none to all; no more buffers than there are chunks for them."""
    chunks, blocks = len(problem.chunks), len(problem.blocks)
    for persist in range(chunks + 1):
        for buffers in range(chunks - persist + 1):
            for swap in range(blocks + 1):
                for checkpoint in range(blocks + 1):
                    numbers = (persist, buffers, swap, checkpoint)
                    plan = plan_of(problem, numbers)
                    if plan is not None:
                        yield numbers, plan


def every_configuration(problem: LayoutProblem) -> list[Numbers]:
    """The four numbers of all decisions that the judge lets pass."""
    return [numbers for numbers, plan in every_plan(problem) if judge_layout(problem, plan).clean]


def least_device_bytes(problem: LayoutProblem) -> int:
    """The least device memory of all configurations that have buffers enough and that the host has room for."""
    return min(
        device_peak(problem, plan)[0]
        for _, plan in every_plan(problem)
        if host_bytes(problem, plan) <= problem.host_bytes
        and max(map(len, bound_to_buffers(problem, passes_of(problem, plan.persistent)))) <= plan.buffers
    )


def time_us(problem: LayoutProblem, numbers: Numbers) -> int:
    """The analytic time: forward, then the longer of backward with updates on the device, and of updates on the cpu."""
    plan = plan_of(problem, numbers)
    assert plan is not None
    chunks, blocks = problem.chunks, problem.blocks
    users = [[k for k, block in enumerate(blocks) if c in block.chunks] for c in range(len(chunks))]
    away = range(numbers[0], len(chunks))
    there = sorted(away, key=lambda c: (-users[c][-1], c))[: plan.buffers]
    out, into, alone = _moving(problem, plan)
    forward, backward = alone, 0
    for k, block in enumerate(blocks):
        loads = [chunks[c] for c in away if users[c][0] == k]
        traffic = (sum(c.load_us for c in loads), sum(c.gather_us for c in loads))
        forward += max(block.forward_us, *traffic, out[k])
        missing = [chunks[c] for c in away if users[c][-1] == k and c not in there]
        done = [(c in away, chunks[c]) for c in range(len(chunks)) if users[c][0] == k]
        reductions = sum(c.reduce_us if is_away else c.allreduce_us for is_away, c in done)
        backward += max(
            block.backward_us + (block.forward_us if plan.policies[k] == "checkpoint" else 0),
            sum(c.load_us for c in missing) + into[k],
            sum(c.gather_us for c in missing) + reductions,
            sum(c.offload_us for is_away, c in done if is_away),
        )
    device = sum(c.device_update_us for c in chunks[: numbers[0]])
    cpu = sum(c.cpu_update_us for c in chunks[numbers[0] :])
    if problem.overlap_update:
        return forward + max(backward + device, cpu)
    return forward + backward + max(device, cpu)


def _moving(problem: LayoutProblem, plan: LayoutPlan) -> tuple[list[int], list[int], int]:
    """A swapped block's transfers, in equal parts along with the blocks after it; the time of what is then left."""
    out, into, alone = [0] * len(problem.blocks), [0] * len(problem.blocks), 0
    for k, block in enumerate(problem.blocks):
        if plan.policies[k] != "swap":
            continue
        for lane, total in ((out, block.swap_out_us), (into, block.swap_in_us)):
            left = total
            for j in range(k + 1, min(k + 1 + problem.interval, len(problem.blocks))):
                lane[j] += -(-total // problem.interval)
                left -= -(-total // problem.interval)
            alone += max(0, left)
    return out, into, alone


def uneven_problem(seed: int, most_blocks: int = 7) -> LayoutProblem:
    """Blocks that differ, memory that just holds a configuration drawn at random, or a byte less."""
    source = random.Random(seed)
    chunks = random_problem(2 * seed)
    blocks = [block for part in range(most_blocks) for block in random_problem(97 * seed + part).blocks]
    count = source.randint(2, most_blocks)
    used: list[set[int]] = [set() for _ in range(count)]
    for index in range(len(chunks.chunks)):
        used[source.randrange(count)].add(index)
        used[index * count // len(chunks.chunks)].add(index)
    problem = msgspec.structs.replace(
        chunks,
        interval=source.randint(1, 3),
        host_bytes=chunks.host_bytes if seed % 3 else chunks.host_bytes // 3,
        blocks=tuple(
            msgspec.structs.replace(block, chunks=tuple(sorted(own)))
            for block, own in zip(blocks[:count], used, strict=True)
        ),
    )
    _, plan = source.choice([*every_plan(problem)])
    return msgspec.structs.replace(problem, device_bytes=device_peak(problem, plan)[0] - source.choice([0, 0, 1]))
