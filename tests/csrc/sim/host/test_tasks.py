"""A task of the host's worker takes the time that it was said to take, beside the thread that launches."""

import pytest
import torch

from runtime.device import SimDevice, TraceRecord
from solvers.ir.errors import InvalidInput

N = 4096
LAUNCH, COPY = 2_000, 10_000 + N
"""Nanoseconds of the round hardware: a launch, and a copy of N bytes over the link."""


@pytest.fixture
def zeroed(sim: SimDevice) -> SimDevice:
    sim.reset()
    sim.set_tracing(True)
    return sim


def device_bytes() -> torch.Tensor:
    return torch.ones(N, dtype=torch.uint8, device="sim")


def pinned_bytes() -> torch.Tensor:
    return torch.zeros(N, dtype=torch.uint8).pin_memory()


def test_the_launching_thread_goes_on_and_tasks_queue_up(zeroed: SimDevice) -> None:
    first, second = zeroed.host_task(3_000), zeroed.host_task(4_000)
    assert zeroed.host_ns() == 0
    second.synchronize()
    assert zeroed.host_ns() == 7_000
    assert first.elapsed_time(second) == 0.004
    zeroed.host_task(500).synchronize()
    assert zeroed.host_ns() == 7_500


def test_a_cpu_optimizer_between_two_copies(zeroed: SimDevice) -> None:
    """Out, updated, back: start = max(worker, event, host), and the way back starts where the task ends."""
    x, host = device_bytes(), pinned_bytes()
    zeroed.synchronize()
    begin, lane = zeroed.host_ns(), torch.Stream(device="sim")
    with lane:
        host.copy_(x, non_blocking=True)
        out = lane.record_event()
        done = zeroed.host_task(7_000, out, reads=[host], writes=[host], name="adamw")
        lane.wait_event(done)
        x.copy_(host, non_blocking=True)
    assert zeroed.host_ns() == begin + 2 * LAUNCH
    assert zeroed.stream_ns(lane) == begin + LAUNCH + COPY + 7_000 + COPY
    (task,) = [record for record in zeroed.trace() if record.kind == "host"]
    assert (task.op, task.start_ns - begin, task.end_ns - task.start_ns) == ("adamw", LAUNCH + COPY, 7_000)
    lane.synchronize()


def test_kernels_run_beside_a_task(zeroed: SimDevice) -> None:
    x = device_bytes()
    zeroed.synchronize()
    begin = zeroed.host_ns()
    done = zeroed.host_task(1_000_000)
    x.add_(1)
    assert zeroed.now_ns() < begin + 1_000_000
    torch.accelerator.current_stream().wait_event(done)
    x.add_(1)
    assert zeroed.now_ns() > begin + 1_000_000


def test_synchronizing_the_device_waits_for_no_task(zeroed: SimDevice) -> None:
    done = zeroed.host_task(5_000)
    torch.accelerator.synchronize()
    zeroed.synchronize()
    assert zeroed.host_ns() == 0
    assert not done.query()  # costs the host 1 µs, as a look at any event
    done.synchronize()
    assert zeroed.host_ns() == 5_000


def test_work_is_done_at_once_and_sees_what_the_task_waited_for(zeroed: SimDevice) -> None:
    x, host, side = device_bytes(), pinned_bytes(), torch.Stream(device="sim")
    zeroed.synchronize()
    with side:
        host.copy_(x, non_blocking=True)
        out = side.record_event()
    done = zeroed.host_task(1_000, out, work=lambda: host.add_(4))
    done.synchronize()
    zeroed.host_access(host, write=False)
    assert host.eq(5).all()


def test_what_work_raises_is_raised_and_the_worker_goes_on(zeroed: SimDevice) -> None:
    def fail() -> None:
        raise ValueError("no such parameter")

    with pytest.raises(ValueError, match="no such parameter"):
        zeroed.host_task(1_000, work=fail)
    zeroed.host_task(1_000).synchronize()
    assert zeroed.host_ns() == 2_000


def test_two_runs_leave_one_trace(zeroed: SimDevice) -> None:
    def run() -> list[TraceRecord]:
        zeroed.reset()
        test_a_cpu_optimizer_between_two_copies(zeroed)
        zeroed.host_task(10, work=lambda: torch.zeros(3).add_(1))
        return [record._replace(stream=0) for record in zeroed.trace()]

    assert run() == run()


@pytest.mark.parametrize("duration", [-1, 10**15, 1.5, True])
def test_a_duration_is_whole_nanoseconds(sim: SimDevice, duration: int) -> None:
    with pytest.raises(InvalidInput, match="duration_ns"):
        sim.host_task(duration)


def test_a_task_touches_the_hosts_memory_only(sim: SimDevice) -> None:
    with pytest.raises(InvalidInput, match="a tensor of device sim:0 is nothing that the host reads or writes"):
        sim.host_task(1, reads=[device_bytes()])
