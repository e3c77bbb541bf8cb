"""The interleaved layout that leaves most memory free."""

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from solvers.check.layout.judge import device_peak, host_bytes
from solvers.check.layout.least import least_device_bytes
from solvers.layout.make import Rank, problem_from_shape
from solvers.layout.smallest import smallest_plan

GIB = 1 << 30


@pytest.mark.parametrize("host", [0, 40, 75, 100, 107, 108, 200])
def test_the_smallest_plan_keeps_no_chunk_that_the_host_has_room_for(host: int) -> None:
    """And it is not below what the judge's own walk over the blocks says is needed at least."""
    problem = problem_from_shape(
        read_shape("gpt2-10b"), read_hardware("protrain-3090"), Rank(ranks=4, host_bytes=host * GIB), batch=8
    )
    plan = smallest_plan(problem)
    assert host_bytes(problem, plan) <= problem.host_bytes
    assert least_device_bytes(problem)[0] <= device_peak(problem, plan)[0]
    assert plan.persistent == tuple(range(len(plan.persistent))) and set(plan.policies[1:-1]) == {"checkpoint"}
    if plan.persistent:
        fewer = plan.persistent[:-1]
        away = sum(chunk.host_bytes for number, chunk in enumerate(problem.chunks) if number not in fewer)
        assert away > problem.host_bytes
