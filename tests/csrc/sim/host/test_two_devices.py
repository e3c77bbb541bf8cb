"""Each device's host has a worker; a thread that turns to another device stays one host."""

import threading
from collections.abc import Callable

import torch

from runtime.device import SimDevice

N = 4096


def down(index: int, host: torch.Tensor) -> torch.Event:
    x = torch.ones(N, dtype=torch.uint8, device=f"sim:{index}")
    with torch.accelerator.device_index(index):
        stream = torch.accelerator.current_stream()
        host.copy_(x, non_blocking=True)
        event = stream.record_event()
        x.record_stream(stream)
        return event


def test_workers_run_beside_each_other(machine: Callable[..., SimDevice]) -> None:
    sim = machine(devices=2)
    sim.reset()
    ends = [sim.at(0).host_task(5_000), sim.at(1).host_task(3_000), sim.at(1).host_task(1_000)]
    ends[2].synchronize()
    assert sim.host_ns() == 4_000
    ends[0].synchronize()
    assert sim.host_ns() == 5_000


def test_a_thread_on_two_devices_is_one_host(machine: Callable[..., SimDevice]) -> None:
    sim = machine(devices=2, races="record")
    host = torch.zeros(N, dtype=torch.uint8).pin_memory()
    down(1, host).synchronize()
    sim.at(0).host_access(host, write=True)
    down(1, host)
    assert sim.races() == []
    sim.at(0).host_access(host, write=False)
    (race,) = sim.races()
    assert (race.first.device, race.second.device) == (1, 0)
    assert "of the host of sim:0, bytes 0-4096) is not ordered after write by 'copy to host'" in race.sentence
    sim.synchronize()


def test_a_task_waits_for_another_devices_event(machine: Callable[..., SimDevice]) -> None:
    sim = machine(devices=2, races="record")
    host = torch.zeros(N, dtype=torch.uint8).pin_memory()
    ready = down(1, host)
    done = sim.at(0).host_task(1_000, ready, reads=[host], writes=[host])
    torch.accelerator.current_stream(1).wait_event(done)
    down(1, host)
    assert sim.races() == []
    sim.at(0).host_task(1_000, reads=[host])
    (race,) = sim.races()
    assert "of the host's worker of sim:0, bytes 0-4096)" in race.sentence
    sim.synchronize()


def test_threads_of_two_devices_are_two_hosts(machine: Callable[..., SimDevice]) -> None:
    """Nothing that the check knows orders one rank's write before another one's copy."""
    sim = machine(devices=2, races="record")
    host = torch.zeros(N, dtype=torch.uint8).pin_memory()
    sim.synchronize()
    sim.at(0).host_access(host, write=True)
    other = threading.Thread(target=lambda: down(1, host))
    other.start()
    other.join()
    (race,) = sim.races()
    assert race.sentence.endswith("let stream 0 of sim:1 wait for what the host of sim:0 did")
    sim.synchronize()
