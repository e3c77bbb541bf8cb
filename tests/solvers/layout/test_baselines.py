"""The points and rules that stand for other systems: what they decide, when they fit, how problems differ for them."""

import msgspec
import pytest

from solvers.check.layout.judge import judge_layout
from solvers.ir import InvalidInput, LayoutProblem, Limits, Status
from solvers.layout.baselines import ColossalStatic, Fsdp, Zero3Offload, buffers_of_neighbours, fits, offloaded
from solvers.layout.evaluate import evaluate, instance, least_buffers
from solvers.layout.search import Search
from solvers.layout.systems import HOST_BYTES_PER_PARAMETER, as_run_by, without_offload
from tests.solvers.layout.brute_force import random_problem

LIMITS = Limits()


def roomy(seed: int) -> LayoutProblem:
    return msgspec.structs.replace(random_problem(seed), device_bytes=1000, host_bytes=1000)


def test_everything_is_offloaded_and_checkpointed() -> None:
    for seed in range(30):
        problem = roomy(seed)
        given = instance(problem)
        for solver in (Zero3Offload(), ColossalStatic()):
            plan = solver.solve(problem, LIMITS).plan
            assert plan is not None and plan.persistent == ()
            assert plan.policies == offloaded(problem, 0, "checkpoint").policies
            assert judge_layout(problem, plan).clean
        static = ColossalStatic().solve(problem, LIMITS).plan
        assert static is not None and static.buffers == least_buffers(given, ())


def test_buffers_are_tuned_on_the_lanes() -> None:
    better = 0
    for seed in range(30):
        problem = roomy(seed)
        given, tuned = instance(problem), Zero3Offload().solve(problem, LIMITS)
        counts = range(least_buffers(given, ()), len(problem.chunks) + 1)
        ends = [evaluate(given, offloaded(problem, count, "checkpoint")).end_us for count in counts]
        assert tuned.objective == min(ends)  # so few chunks that every count is tried
        better += tuned.objective < ends[0]
        least = Zero3Offload(buffers=counts[0]).solve(problem, LIMITS)
        assert least.objective == ends[0] == ColossalStatic().solve(problem, LIMITS).objective
    assert better > 3


def test_too_few_buffers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="zero3-offload has 0 buffers, but 1 are needed at once: give more"):
        Zero3Offload(buffers=0).solve(next(p for p in map(roomy, range(30)) if len(p.chunks) == 1), LIMITS)


def test_all_is_kept_where_it_fits_and_checkpointed_where_not() -> None:
    switched = 0
    for seed in range(30):
        problem = roomy(seed)
        given = instance(problem)
        keep = offloaded(problem, buffers_of_neighbours(given), "keep")
        assert Fsdp().solve(problem, LIMITS).plan == keep
        assert Fsdp(checkpoint=False).solve(problem, LIMITS).plan == keep
        for device in range(0, 60, 3):
            small = msgspec.structs.replace(problem, device_bytes=device)
            if fits(instance(small), keep):
                break
            checkpointed = Fsdp().solve(small, LIMITS)
            assert checkpointed.objective == Fsdp(checkpoint=True).solve(small, LIMITS).objective
            assert Fsdp(checkpoint=False).solve(small, LIMITS).plan is None
            switched += checkpointed.plan is not None
    assert switched > 10


def test_two_blocks_parameters_are_there_at_once() -> None:
    for seed in range(30):
        problem = random_problem(seed)
        pairs = zip(problem.blocks, problem.blocks[1:], strict=False)
        together = max(len({*one.chunks, *other.chunks}) for one, other in pairs)
        assert buffers_of_neighbours(instance(problem)) == max(together, least_buffers(instance(problem), ()))


def test_what_does_not_fit_is_said_and_infeasible_only_with_a_proof() -> None:
    unknown = 0
    for seed in range(60):
        problem = msgspec.structs.replace(roomy(seed), host_bytes=random_problem(seed).host_bytes // 2)
        solution = ColossalStatic().solve(problem, LIMITS)
        if solution.status is Status.UNKNOWN and Search().solve(problem, LIMITS).plan is not None:
            assert "colossal-static needs" in (solution.reason or "")
            unknown += 1
        if solution.status is Status.INFEASIBLE:
            assert Search().solve(problem, LIMITS).plan is None
    assert unknown > 5


def test_other_systems_keep_more_on_the_host_and_update_after_backward() -> None:
    problem = roomy(2)
    for name, each in HOST_BYTES_PER_PARAMETER.items():
        other = as_run_by(name, problem)
        assert not other.overlap_update
        for chunk, mine in zip(other.chunks, problem.chunks, strict=True):
            assert chunk.host_bytes == (-(-mine.host_bytes * each // 12) if mine.trainable else mine.host_bytes)


def test_without_offload_the_shards_lie_on_the_device() -> None:
    """Two ranks, a trainable chunk of 8 bytes, 6 bytes of states: 4 of parameters, 4 of gradients, 6 of states."""
    drawn = next(p for p in map(random_problem, range(99)) if p.ranks == 2 and len(p.chunks) == 1)
    chunk = msgspec.structs.replace(drawn.chunks[0], trainable=True, persistent_bytes=6, device_update_us=3)
    problem = msgspec.structs.replace(drawn, chunk_bytes=8, chunks=(chunk,), device_bytes=1000)
    other = without_offload(problem)
    assert other.fixed_bytes == problem.fixed_bytes + 14
    (left,) = other.chunks
    assert (left.load_us, left.offload_us, left.cpu_update_us, left.host_bytes) == (0, 0, 3, 0)
    plan = Zero3Offload().solve(other, LIMITS).plan
    assert plan is not None and judge_layout(other, plan).clean
