"""What planned steps and sessions page-lock: what the plan says and at most 5 % more, and nothing after `close`.

The device's own allocator of page-locked memory rounds up to powers of two here and keeps what it gets back, as
PyTorch's does on CUDA; its counters are what is measured, not the engine's.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from experiments.models.gpt import GptShape, build_gpt
from runtime.device import sim_hardware, use_sim
from runtime.device.native import core, load
from runtime.execute.program import host_need_bytes, host_requests, host_rounded_bytes
from runtime.profile import profile_step
from runtime.swap import SwapExecutor, release_host_memory, session
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.schedule import Schedule
from solvers.planner import planner
from tests.runtime.execute.training import Trainee, graph_of, plainly, schedule_of, sensible, small, train, warm

SHARE = 1.05


def gpt(device: torch.device) -> Trainee:
    """Sizes that are no powers of two: rounded up, they take a tenth to a quarter more."""
    return Trainee(*build_gpt(GptShape(layers=3, width=72, heads=2, context=40, batch=10, dropout=0.1), device))


def counted() -> tuple[int, int]:
    """Page-locked bytes now and at most, as the device counts them."""
    counters = load("runtime._sim").counters()
    return int(counters["pinned_bytes"]), int(counters["pinned_peak_bytes"])


@pytest.fixture
def rounding(device: torch.device) -> Iterator[torch.device]:
    release_host_memory()
    use_sim(pinned_rounding="power-of-two")
    yield device
    core.set_host_arenas(True)
    release_host_memory()
    use_sim()


def planned(device: torch.device, share: str, solver: str = "greedy-swap") -> tuple[OpGraph, Schedule]:
    graph = graph_of(gpt, device)
    schedule = planner(solver)(graph, use_sim(pinned_rounding="power-of-two").hardware, share).plan
    assert schedule is not None
    return graph, schedule


@pytest.mark.parametrize("share", ["80%", "65%", "55%"])
def test_a_planned_step_page_locks_what_its_plan_says(rounding: torch.device, share: str) -> None:
    graph, schedule = planned(rounding, share)
    need = host_need_bytes(schedule, graph)
    with SwapExecutor(schedule, graph, rounding) as executor:
        swapped = train(gpt, rounding, lambda trainee: executor.run(trainee.step).value)
        assert need <= counted()[0] <= counted()[1] <= SHARE * need
        assert counted()[0] == executor.host_bytes
    assert counted()[0] == 0
    assert core.host_stats().held_bytes == 0
    assert swapped.equals(train(gpt, rounding, plainly))


def test_without_arenas_it_takes_what_rounding_makes_of_it_and_that_is_planned_too(rounding: torch.device) -> None:
    """The same plan and the same bits for more memory, which the executor counts before it runs."""
    graph, schedule = planned(rounding, "60%")
    core.set_host_arenas(False)
    executor = SwapExecutor(schedule, graph, rounding)
    need, rounded = host_need_bytes(schedule, graph), host_rounded_bytes(schedule, graph)
    assert executor.host_bytes == rounded > 1.1 * need
    executor.run(warm(gpt, rounding).step)
    assert counted()[1] == rounded
    with pytest.raises(InvalidInput, match=rf"takes {rounded} bytes of the host at once .* in blocks of powers of two"):
        SwapExecutor(schedule, graph, rounding, host_limit_bytes=need)


def test_a_limit_of_the_tensors_own_bytes_is_refused_before_a_step_where_they_do_not_lie_that_close(
    rounding: torch.device,
) -> None:
    """Sizes that are no multiple of what host memory is cut into."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(17, 17), nn.GELU()) for _ in range(24))).to(rounding)
    data = torch.randn(173, 17).to(rounding)

    def step() -> None:
        model.zero_grad()
        model(data).square().mean().backward()

    graph = profile_step(step, rounding, model=model)
    schedule = planner("greedy-swap")(graph, sim_hardware(), "60%").plan
    assert schedule is not None
    need = host_need_bytes(schedule, graph)
    with pytest.raises(InvalidInput, match=rf"\(tensors of {need} bytes, side by side\), host_limit_bytes is {need}"):
        SwapExecutor(schedule, graph, rounding, host_limit_bytes=need)
    enough = SwapExecutor(schedule, graph, rounding).host_bytes
    assert SwapExecutor(schedule, graph, rounding, host_limit_bytes=enough).run(step).counts.as_planned


def test_the_limit_is_the_device_s_count_too(rounding: torch.device) -> None:
    """A limit of what the executor needs is never passed, whatever else has been page-locked before."""
    graph, schedule = planned(rounding, "60%")
    executor = SwapExecutor(schedule, graph, rounding)
    core.reserve_host(3 * executor.host_bytes, rounding)
    limited = SwapExecutor(schedule, graph, rounding, host_limit_bytes=executor.host_bytes)
    trainee = warm(gpt, rounding)
    assert limited.run(trainee.step).counts.as_planned
    use_sim(pinned_rounding="power-of-two")
    assert limited.run(trainee.step).counts.as_planned
    assert counted()[1] <= executor.host_bytes


def test_memory_is_page_locked_once_before_the_first_step(device: torch.device) -> None:
    """And no events are made in later ones: those of the first are recorded again."""
    graph = graph_of(small, device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, device)
    trainee = warm(small, device)
    executor.run(trainee.step)
    allocations, events = core.host_stats().allocations, core.events_made()
    for _ in range(3):
        assert executor.run(trainee.step).counts.as_planned
    assert core.host_stats().allocations == allocations
    assert core.events_made() == events


def test_requests_name_each_tensor_when_it_leaves_and_returns(device: torch.device) -> None:
    graph = graph_of(small, device)
    moves = sensible(graph, 1024)
    asked = host_requests(schedule_of(graph, moves), graph)
    assert sorted(size for takes, size in asked if takes) == sorted(graph.tensor(move.tensor).bytes for move in moves)
    assert sorted(number for takes, number in asked if not takes) == list(range(len(moves)))


def test_a_session_page_locks_what_the_policy_needs_that_it_keeps_and_returns_all(rounding: torch.device) -> None:
    """What other policies page-locked while they were tried makes way when one is kept."""
    free = train(gpt, rounding, plainly, steps=1)
    assert free.losses
    trainee = warm(gpt, rounding)
    use_sim(pinned_rounding="power-of-two")
    with session("100%", device=rounding) as resting:
        trainee.step()
    peak = resting.report().peak_bytes
    with session(int(0.7 * peak), device=rounding) as following:
        for _ in range(14):
            trainee.step()
        held, used = counted()[0], core.host_stats().peak_used_bytes
    assert 0 < used <= held <= SHARE * used, (used, held)
    assert following.report().host_peak_bytes >= used
    assert counted()[0] == 0
