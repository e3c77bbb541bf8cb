"""Waits for collectives as windows: whoever calls them, once each, and on the stream that computes only."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from runtime.device.native import core
from runtime.recompute.tape import NOTHING, StorePolicy, record
from tests.accelerators import prepared
from tests.runtime.ranks.cluster import run
from tests.runtime.recompute.regions import backward

pytestmark = pytest.mark.usefixtures("plain_sim")


@contextmanager
def watched(device: torch.device) -> Iterator[core.Windows]:
    """Windows that are measured."""
    windows = core.Windows(device, True)
    windows.watch()
    try:
        yield windows
    finally:
        windows.stop()


def opened(program: Callable[[Tensor], object]) -> list[tuple[int, int, float]]:
    """Of each of two ranks: windows that opened, waits that were measured, and how long the first took."""

    def on_rank(rank: int, device: torch.device) -> tuple[int, int, float]:
        given = torch.ones(4096, device=device)
        with watched(device) as windows:
            program(given)
        first = windows.waits[0] if windows.waits else (0, 0)
        if not windows.waits:
            windows.mark()
        return windows.opened, len(windows.waits), windows.at_us(first[1]) - windows.at_us(first[0])

    return run(on_rank, 2, races="raise").values


def asynchronously(given: Tensor) -> None:
    """Waited for twice: the second time nothing is waited for."""
    work = dist.all_reduce(given, async_op=True)
    assert work is not None
    work.wait()
    work.wait()


def as_an_operator(given: Tensor) -> None:
    """Functional collectives wait by an operator, inside of which the group's work is waited for."""
    name = dist.distributed_c10d._get_default_group().group_name
    collectives = torch.ops._c10d_functional
    collectives.wait_tensor(collectives.all_reduce(given, "sum", name))


def in_both_ways(given: Tensor) -> None:
    """Gathers, then scatters."""
    parts = [torch.empty_like(given) for _ in range(2)]
    dist.all_gather(parts, given)
    dist.reduce_scatter(given, parts)


def beside(given: Tensor) -> None:
    """On another stream: the one that computes waits for nothing."""
    other = torch.Stream(given.device)
    other.wait_stream(torch.accelerator.current_stream())
    with other:
        dist.all_reduce(given)
    torch.accelerator.current_stream().wait_stream(other)


def message(given: Tensor) -> None:
    """From rank 0 to rank 1."""
    (dist.send if dist.get_rank() == 0 else dist.recv)(given, 1 - dist.get_rank())


@pytest.mark.parametrize(
    ("program", "windows"),
    [
        (dist.all_reduce, 1),
        (asynchronously, 1),
        (in_both_ways, 2),
        (as_an_operator, 1),
        (beside, 0),
        (message, 0),
        (lambda given: dist.barrier(), 0),
        (lambda given: dist.all_reduce(given.cpu()), 0),
    ],
)
def test_a_wait_for_a_collective_is_one_window(program: Callable[[Tensor], object], windows: int) -> None:
    for count, waits, first_us in opened(program):
        assert count == waits == windows
        assert (first_us > 0) is (windows > 0)


def test_each_wait_is_told_whom_a_plan_names_by_its_number_from_there_on() -> None:
    """What is wrong there is nobody's in the program, which goes on."""

    def on_rank(rank: int, device: torch.device) -> tuple[list[int], float]:
        given, told = torch.ones(8, device=device), list[int]()

        def in_wait(number: int) -> None:
            told.append(number)
            if number == 1:
                raise RuntimeError("out of memory, say")

        with watched(device) as windows:
            dist.all_reduce(given)
            windows.plan([], in_wait)
            for _ in range(3):
                dist.all_reduce(given)
            windows.plan([])
            dist.all_reduce(given)
        return told, given[0].item()

    assert run(on_rank, 2, races="raise").values == [([0, 1, 2], 32.0)] * 2


def test_nobody_is_told_where_nothing_watches() -> None:
    def on_rank(rank: int, device: torch.device) -> tuple[bool, float]:
        given = torch.ones(8, device=device)
        dist.all_reduce(given)
        return core.begin_wait(device), given[0].item()

    assert run(on_rank, 2).values == [(False, 2.0), (False, 2.0)]


class Reduced(torch.autograd.Function):
    """Sums in place over all ranks; `said`: it tells autograd, which Megatron-LM does not."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, partial: Tensor, said: bool) -> Tensor:
        """The sum."""
        if said:
            ctx.mark_dirty(partial)
        dist.all_reduce(partial)
        return partial

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        """As it came."""
        return gradient, None


SIZE = 1 << 16


def region(device: torch.device, policy: StorePolicy | None, said: bool) -> tuple[int, list[float], list[str]]:
    """What is held between the passes, some of the gradient, and the tape's operators, if there is one."""
    given, weight = (torch.linspace(low, low + 1, SIZE).to(device).requires_grad_() for low in (-1.0, 0.5))
    before = torch.accelerator.memory_allocated(device)
    with nullcontext() if policy is None else record(device, policy) as tape:
        total: Tensor = Reduced.apply(given * weight, said)  # type: ignore[no-untyped-call]
        result = (total + 1.0).sin().cos().exp()
        del total
    held = torch.accelerator.memory_allocated(device) - before
    backward(result.sum())
    assert weight.grad is not None
    return held, weight.grad[:5].cpu().tolist(), [] if tape is None else [node.name for node in tape.nodes]


def test_pauses_come_before_operators_and_behind_synchronous_all_reduces() -> None:
    """Of these no operator tells before: at the next one, or at the second note of the last."""

    def on_rank(rank: int, device: torch.device) -> tuple[list[tuple[int, int]], list[str]]:
        told = list[tuple[int, int]]()
        with record(device, StorePolicy()) as tape:
            tape.pause_before([1, 2, 3], lambda node: told.append((node, len(tape))), gathers=True)
            total = torch.ones(8, device=device) * 2
            dist.all_reduce(total)
            more = total.sin()
            dist.all_reduce(more)
        return told, tape.groups

    for told, groups in run(on_rank, 2, races="raise").values:
        assert told == [(1, 2), (2, 2), (3, 4)] and len(groups) == 1


@pytest.mark.parametrize("said", [True, False])
def test_what_a_synchronous_all_reduce_leaves_is_let_go_where_nobody_needs_it(said: bool) -> None:
    """The tape that stores everything takes the bytes of no tape; one that stores nothing keeps the sum."""

    def on_rank(rank: int, device: torch.device) -> list[tuple[int, list[float], list[str]]]:
        return [region(device, policy, said) for policy in (None, StorePolicy(), NOTHING)]

    for plain, everything, nothing in run(on_rank, 2, races="raise").values:
        assert everything[0] == plain[0] == 3 * 4 * SIZE
        assert nothing[0] == 2 * 4 * SIZE  # the sum, and what the region returned
        assert plain[1] == everything[1] == nothing[1]
        assert everything[2].count("c10d::allreduce_") == nothing[2].count("c10d::allreduce_") == 1


def test_a_pause_comes_before_an_operator_of_the_stream_that_asked_for_it() -> None:
    """Not in a loader's thread: what leaves there would leave behind the loader's stream."""
    device = prepared("sim")
    given, told = torch.ones(16, device=device), list[torch.Stream]()

    def load() -> None:
        with torch.Stream(device):
            torch.ones(16, device=device).add(1)

    with watched(device) as windows:
        windows.pause_after(0, lambda: told.append(torch.accelerator.current_stream(device)))
        loader = threading.Thread(target=load)
        loader.start()
        loader.join()
        assert not told
        given.add(1)
    assert told == [torch.accelerator.current_stream(device)]
