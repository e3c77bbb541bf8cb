"""The least memory of layouts: what brute force finds, and what the independent judge says."""

import math
import random
from itertools import product

import msgspec
import pytest
from hypothesis import given, settings

from solvers.check.layout.bound import add_up_least_memory
from solvers.check.layout.buffers import bound_to_buffers, passes_of
from solvers.check.layout.judge import device_peak, host_bytes
from solvers.check.layout.least import least_device_bytes
from solvers.ir import LayoutPlan, LayoutProblem
from solvers.ir.layout import POLICIES, Policy
from solvers.layout import least as layout_least
from solvers.layout.answers import memory_sentence
from solvers.layout.evaluate import instance, least_buffers
from solvers.layout.least import Least, Peak, least_peak
from tests.solvers.layout.brute_force import decisions, random_problem
from tests.strategies import layout_problems


def needs(problem: LayoutProblem) -> list[tuple[int, int]]:
    """Device and host memory of every decision with buffers enough."""
    found = []
    for plan in decisions(problem):
        if max(map(len, bound_to_buffers(problem, passes_of(problem, plan.persistent)))) <= plan.buffers:
            found.append((device_peak(problem, plan)[0], host_bytes(problem, plan)))
    return found


def test_the_least_device_and_host_memory_of_tiny_problems() -> None:
    exact = short = 0
    for seed in range(60):
        problem = random_problem(seed)
        if seed % 2:  # chunks must persist, or else the host has too little
            problem = msgspec.structs.replace(problem, host_bytes=problem.host_bytes // 4)
        least, every = Least(instance(problem)), needs(problem)
        assert least.roomy_bytes == min(device for device, _ in every)
        best = min(device for device, host in every if host <= problem.host_bytes)
        assert least.device_bytes <= best
        if least.is_exact:
            assert least.device_bytes == best
            exact += 1
        short += least.device_bytes > least.roomy_bytes
        for device in range(least.roomy_bytes, best + 9, 3):
            assert least.host_bytes(device) <= min(host for size, host in every if size <= device)
    assert exact > 20 and short > 3


def test_what_alike_chunks_take_that_the_host_has_no_room_for_is_told_exactly() -> None:
    """Whole chunks, each with its place beyond the buffers that it saves: device and host, against every decision."""
    compared = 0
    for seed in range(100):
        drawn = random_problem(seed)
        alike = tuple(drawn.chunks[0] for _ in drawn.chunks)
        blocks = tuple(msgspec.structs.replace(block, choice=False) for block in drawn.blocks)
        for host in range(0, sum(chunk.host_bytes for chunk in alike), 2):
            problem = msgspec.structs.replace(drawn, chunks=alike, blocks=blocks, host_bytes=host)
            least, every = Least(instance(problem)), needs(problem)
            device = min(device for device, used in every if used <= host)
            assert least.device_bytes == device
            assert least.host_bytes(device - 1) <= min((used for size, used in every if size < device), default=10**9)
            compared += 1
    assert compared > 300


@settings(max_examples=100)
@given(layout_problems(max_blocks=7, max_chunks=5))
def test_the_judge_adds_it_up_again_and_no_more(problem: LayoutProblem) -> None:
    """Written apart: both say that so much is needed, also where the host has too little."""
    needed, form = Least(instance(problem)).device_bytes, {"form": "least-memory/1"}
    short, enough = (msgspec.structs.replace(problem, device_bytes=size) for size in (needed - 1, needed))
    assert add_up_least_memory(short, form) == ([], math.inf)
    assert add_up_least_memory(enough, form)[1] == -math.inf


@settings(max_examples=100)
@given(layout_problems(max_blocks=7, max_chunks=5))
def test_it_is_between_the_bounds_of_the_judge(problem: LayoutProblem) -> None:
    least = Least(instance(problem))
    at_least, at_most = least_device_bytes(problem)
    assert at_least <= least.device_bytes <= at_most
    if least.is_exact:
        assert least.device_bytes == at_most


def alike(source: random.Random, count: int, interval: int, choice: float = 0.9) -> LayoutProblem:
    """Blocks that save alike where they have a choice, with transients and inputs that differ."""
    drawn = random_problem(0)
    size, entry = source.randint(0, 5), source.randint(0, 4)
    blocks = []
    for _ in range(count):
        block = msgspec.structs.replace(
            drawn.blocks[0],
            choice=source.random() < choice,
            activation_bytes=size,
            input_bytes=entry,
            forward_transient_bytes=source.choice([0, 0, 0, 1]),
            backward_transient_bytes=source.choice([0, 0, 0, 3]),
            chunks=(),
        )
        blocks.append(block if block.choice else msgspec.structs.replace(block, activation_bytes=source.randint(0, 3)))
    blocks[0] = msgspec.structs.replace(blocks[0], chunks=tuple(range(len(drawn.chunks))))
    return msgspec.structs.replace(drawn, interval=interval, blocks=tuple(blocks), host_bytes=10**12)


def test_the_earliest_swaps_of_blocks_that_are_alike_leave_most_room() -> None:
    """Against all policies, by the judge; of those with the least peak the fewest bytes are swapped."""
    swapping = 0
    for seed in range(60):
        source = random.Random(seed)
        problem = alike(source, source.randint(1, 6), source.choice([1, 1, 2, 3]))
        options = [POLICIES if block.choice else ("keep",) for block in problem.blocks]
        plans = [LayoutPlan(persistent=(), buffers=0, policies=each) for each in product(*options)]
        needed = [(device_peak(problem, one)[0] - problem.fixed_bytes, host_bytes(problem, one)) for one in plans]
        away = sum(chunk.host_bytes for chunk in problem.chunks)
        peak, host = min(needed)
        assert least_peak(problem) == Peak(peak, True, host - away), seed
        swapping += host > away
    assert swapping > 10


def test_dozens_of_blocks_that_are_alike_agree_with_the_walk_of_the_judge() -> None:
    for seed in range(12):
        problem = alike(random.Random(seed), 60, 1 + seed % 4, choice=1 - seed % 3 / 10)
        least = Least(instance(problem))
        assert least.is_exact and least_device_bytes(problem) == (least.device_bytes, least.device_bytes)


@pytest.mark.parametrize("interval", [1, 12])
def test_thousands_of_blocks_take_a_moment(interval: int) -> None:
    """Alike: the least itself. Uneven, and more cases than can be walked through: no more than it, and said so."""
    even = alike(random.Random(0), 3400, interval, choice=1)
    assert Least(instance(even)).is_exact
    source = random.Random(1)
    uneven = msgspec.structs.replace(
        even,
        blocks=tuple(
            msgspec.structs.replace(
                block, activation_bytes=source.randint(1, 10**6), input_bytes=source.randint(1, 10**5)
            )
            for block in even.blocks
        ),
    )
    least = Least(instance(uneven))
    every: list[Policy] = ["checkpoint"] * 3400
    enough = LayoutPlan(persistent=(), buffers=least_buffers(least.given, ()), policies=tuple(every))
    assert least.device_bytes <= device_peak(uneven, enough)[0]
    assert least.is_exact == (interval == 1)
    label = "exactly" if least.is_exact else "at least"
    short = msgspec.structs.replace(uneven, device_bytes=least.device_bytes - 1)
    assert f"{label} {least.device_bytes} bytes are needed" in memory_sentence(Least(instance(short)))


def test_a_walk_that_gives_up_still_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = 0
    for seed in range(60):
        problem = random_problem(seed)
        found = least_peak(problem)
        with monkeypatch.context() as patched:
            patched.setattr(layout_least, "CASES", 0)
            bounded = least_peak(problem)
        assert found.exact and bounded.bytes <= found.bytes
        gaps += bounded.bytes < found.bytes
        assert not bounded.exact or bounded == found
    assert gaps > 3
