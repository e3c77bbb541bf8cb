"""Other threads of the program run operators while a step is executed: they are not the step's, and harm nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from runtime.swap import Executed, SwapExecutor
from tests.accelerators import ON_EACH
from tests.runtime.execute.training import Trainee, graph_of, plainly, schedule_of, sensible, small, train


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Another thread repeats the work, at least once, until the context ends; what it raises fails the test."""
    stop, started = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def loop() -> None:
        try:
            while not (stop.is_set() and started.is_set()):
                work()
                started.set()
        except BaseException as error:
            raised.append(error)
            started.set()

    thread = threading.Thread(target=loop)
    thread.start()
    started.wait(60)
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert raised == []


@ON_EACH
def test_a_data_loader_s_thread_is_no_part_of_the_step(device: torch.device) -> None:
    graph = graph_of(small, device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, device)
    samples = [torch.arange(100.0) + number for number in range(8)]

    def run(trainee: Trainee) -> torch.Tensor:
        with meanwhile(lambda: torch.stack(samples).mul_(2).mean().item()):
            executed = executor.run(trainee.step)
        assert executed.counts.as_planned, executed.counts
        return executed.value

    assert train(small, device, run).equals(train(small, device, plainly))


@ON_EACH
def test_a_thread_that_reads_on_the_device_sees_right_data_and_changes_none(device: torch.device) -> None:
    """It may read what the plan would send away: then the storage stays, or comes back for it."""
    graph = graph_of(small, device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, device)
    results: list[Executed[torch.Tensor]] = []
    wrong: list[float] = []
    values = torch.arange(1000, dtype=torch.float32, device=device)
    torch.accelerator.synchronize()

    def read() -> None:
        if (values + 1)[-1].item() != 1000.0:
            wrong.append(1)

    def run(trainee: Trainee) -> torch.Tensor:
        with meanwhile(read):
            results.append(executor.run(trainee.step))
        return results[-1].value

    assert train(small, device, run).equals(train(small, device, plainly))
    assert wrong == []
    assert all(result.counts.operators == len(graph.ops) for result in results)
    assert all(result.counts.departure is None for result in results)


def test_a_step_begun_on_another_thread_is_followed_there(device: torch.device) -> None:
    graph = graph_of(small, device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, device)

    def run(trainee: Trainee) -> torch.Tensor:
        results: list[Executed[torch.Tensor]] = []
        thread = threading.Thread(target=lambda: results.append(executor.run(trainee.step)))
        thread.start()
        thread.join()
        assert results[0].counts.as_planned, results[0].counts
        return results[0].value

    assert train(small, device, run).equals(train(small, device, plainly))


@pytest.mark.parametrize("when", ["inside", "around"])
def test_a_profiler_may_run_at_the_same_time(device: torch.device, when: str) -> None:
    graph = graph_of(small, device)
    executor = SwapExecutor(schedule_of(graph, sensible(graph, 1024)), graph, device)

    def run(trainee: Trainee) -> torch.Tensor:
        def profiled() -> torch.Tensor:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                return trainee.step()

        if when == "inside":
            executed = executor.run(profiled)
        else:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                executed = executor.run(trainee.step)
        assert executed.counts.as_planned, executed.counts
        return executed.value

    assert train(small, device, run).equals(train(small, device, plainly))
