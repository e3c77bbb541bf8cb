"""Ranks as threads, one a device: what one does is the same whatever the others do meanwhile."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn

from runtime.device import SimDevice, TraceRecord
from runtime.swap import session

Machine = Callable[..., SimDevice]


def at_once(programs: list[Callable[[], object]]) -> None:
    """Runs a program on each device, by a thread whose current device it is."""
    errors: list[BaseException] = []

    def main(index: int) -> None:
        torch.accelerator.set_device_index(index)
        try:
            programs[index]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=main, args=(index,)) for index in range(len(programs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _train(steps: int, sums: list[float], side: torch.Stream) -> None:
    generator = torch.Generator().manual_seed(1)
    first, second = nn.Linear(32, 64, device="sim"), nn.Linear(64, 4, device="sim")
    model = nn.Sequential(first, nn.ReLU(), nn.Dropout(0.2), second)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 32, generator=generator).to("sim")).square().mean()
        loss.backward()
        optimizer.step()
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            sums.append(loss.item())
        torch.accelerator.current_stream().wait_stream(side)


def test_ranks_do_not_disturb_each_other(machine: Machine) -> None:
    """Noise, times, memory, random numbers and results of a device: with all others at work, and alone."""
    devices = 3
    machine(devices=devices)
    sides = [torch.Stream(device=f"sim:{index}") for index in range(devices)]

    def run(active: set[int]) -> list[tuple[list[float], list[TraceRecord], int, int]]:
        sim = machine(devices=devices, noise=0.1, seed=3)
        sim.set_tracing(True)
        torch.manual_seed(9)
        sums: list[list[float]] = [[] for _ in range(devices)]
        at_once([(lambda i=i: _train(4, sums[i], sides[i])) if i in active else (lambda: None) for i in range(devices)])  # type: ignore[misc]
        assert sim.races() == []
        return [
            (sums[i], sim.at(i).trace(), sim.at(i).host_ns(), sim.at(i).memory().peak_bytes) for i in range(devices)
        ]

    together = run({0, 1, 2})
    assert [trace[0].device for _, trace, _, _ in together] == [0, 1, 2]
    for index in range(devices):
        assert run({index})[index] == together[index]
    assert together[0][0] == together[1][0] == together[2][0]  # seeded alike
    durations = [[record.end_ns - record.start_ns for record in trace] for _, trace, _, _ in together]
    assert durations[0] != durations[1] != durations[2]  # noise is not


def test_a_race_is_told_to_the_device_it_is_on(machine: Machine) -> None:
    """One rank forgets to wait; only that one is stopped, also when the other looks first."""
    sim = machine()
    x = [torch.ones(4, device=f"sim:{index}") for index in range(2)]
    raced, seen = threading.Event(), []

    def careless() -> None:
        with torch.Stream(), pytest.raises(RuntimeError, match="race on a device block"):
            x[0].add_(1)
        raced.set()

    def careful() -> None:
        raced.wait()
        seen.append(x[1].add_(1).tolist())

    at_once([careless, careful])
    assert seen == [[2.0] * 4]
    assert [race.second.device for race in sim.races()] == [0]


@pytest.mark.parametrize("index", [0, 1])
def test_a_session_keeps_the_budget_of_its_own_device(machine: Machine, index: int) -> None:
    """The loop in the session swaps; the other device, in use before, between and after, is never asked for memory."""
    sim = machine(capacity_bytes=64 << 20)

    def program() -> list[float]:
        torch.manual_seed(2)
        layers = [nn.Linear(256, 256) for _ in range(6)]
        model = nn.Sequential(*layers).to("sim")
        found = []
        for _ in range(5):
            x = torch.ones(2048, 256, device="sim")
            loss = model(x).square().mean()
            loss.backward()
            model.zero_grad()
            found.append(loss.item())
        return found

    torch.accelerator.set_device_index(index)
    other = torch.device("sim", 1 - index)
    before = torch.ones(1 << 20, device=other)
    free = program()
    needed = sim.at(index).memory().peak_bytes
    sim.reset()
    with session(needed * 7 // 10):
        after = before + 1
        assert program() == free
    assert after.eq(2).all()
    assert sim.at(index).memory().peak_bytes <= needed * 7 // 10
    assert sim.at(index).counters().bytes_to_host > 1 << 20
    assert sim.at(1 - index).counters().bytes_to_host < 1 << 10


def test_a_session_works_while_another_device_trains(machine: Machine) -> None:
    """A thread trains in a session on one device, another one without on the other, and both get their numbers."""
    machine(capacity_bytes=64 << 20)

    def deep() -> list[float]:
        generator = torch.Generator().manual_seed(2)
        weights = [torch.randn(256, 256, generator=generator).to("sim").requires_grad_() for _ in range(6)]
        found = []
        for _ in range(4):
            x = torch.ones(1024, 256, device="sim")
            for weight in weights:
                x = torch.tanh(x @ weight)
            x.sum().backward()  # type: ignore[no-untyped-call]
            found.append(sum(float(weight.grad.sum()) for weight in weights if weight.grad is not None))
        return found

    def in_session() -> None:
        with session(5 << 20):
            results.append(deep())

    results: list[list[float]] = []
    sums: list[list[float]] = [[], []]
    side = torch.Stream(device="sim:1")
    at_once([lambda: results.append(deep()), lambda: _train(2, sums[0], side)])
    torch.manual_seed(0)
    at_once([in_session, lambda: _train(40, sums[1], side)])
    assert results[0] == results[1]
    assert len(sums[1]) == 40
