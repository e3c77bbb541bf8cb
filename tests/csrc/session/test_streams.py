"""The session's engine among several streams: who waits for what, and that the host waits for no copy.

The simulated device raises races, and its clock tells to the nanosecond whether the host has waited.
"""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from runtime.device import limited_memory, use_sim
from runtime.device.native import core, load
from tests.csrc.session.test_session import engine, relief

__all__ = ["engine", "relief"]
MIB = 1 << 20
FLOATS = MIB // 4


def side_of(device: torch.device) -> torch.Stream:
    """Another stream, behind what the current one holds now."""
    side = torch.Stream(device)
    side.wait_stream(torch.accelerator.current_stream(device))
    return side


def send_away(tensors: list[torch.Tensor], device: torch.device) -> None:
    """By a request for memory that only they can meet; the largest fit first."""
    for _ in range(10):  # nobody is recent any more
        torch.ones(4, device=device).add_(1)
    size = sum(each.nbytes for each in tensors)
    with limited_memory(device, torch.accelerator.memory_allocated()):
        torch.empty(size, dtype=torch.uint8, device=device)
    assert all(core.is_out(each) for each in tensors)


def made(device: torch.device, count: int = 1) -> list[torch.Tensor]:
    """Used by an operator, so that the session knows them."""
    return [torch.full((FLOATS,), float(number), device=device).add_(1) for number in range(count)]


def host_ns() -> int:
    found: int = load("runtime._sim").host_ns()
    return found


def waited(work: Callable[[], object]) -> int:
    """By how much the host's clock went on."""
    began = host_ns()
    work()
    return host_ns() - began


def test_what_the_training_stream_has_back_another_one_waits_for_itself(
    device: torch.device, engine: core.SwapSession
) -> None:
    """It is behind what made the tensor, which is all that a program knows of."""
    (tensor,) = made(device)
    side = side_of(device)
    send_away([tensor], device)
    copy_ns = 60_000  # of 1 MiB over the simulated link; less than half of that is no wait for it

    def use() -> None:
        tensor.mul_(2)

    def use_beside() -> None:
        with side:
            beside.append(tensor.detach() + 1)

    beside: list[torch.Tensor] = []
    assert waited(use) < copy_ns // 2
    side.wait_stream(torch.accelerator.current_stream(device))
    assert waited(use_beside) < copy_ns // 2
    torch.accelerator.current_stream(device).wait_stream(side)
    assert float(beside[0].cpu()[0]) == 3.0


def test_a_reader_that_knows_nothing_of_the_way_back_reads_what_was_there(
    device: torch.device, engine: core.SwapSession
) -> None:
    """Both only read, so the program orders neither behind the other."""
    (tensor,) = made(device)
    side = side_of(device)
    send_away([tensor], device)
    here = tensor + 1
    with side:
        there = tensor + 2
    other = torch.Stream(device)
    other.wait_stream(side)
    with other:
        third = tensor + there
    side.synchronize()
    other.synchronize()
    assert [float(each.cpu()[0]) for each in (here, there, third)] == [2.0, 3.0, 4.0]


def test_the_training_stream_may_read_what_another_one_has_brought_back(
    device: torch.device, engine: core.SwapSession
) -> None:
    (tensor,) = made(device)
    side = side_of(device)
    send_away([tensor], device)
    with side:
        there = tensor + 2
    here = tensor + 1  # not behind the side stream
    side.synchronize()
    assert [float(each.cpu()[0]) for each in (here, there)] == [2.0, 3.0]


def test_what_another_stream_still_reads_leaves_behind_it(device: torch.device, engine: core.SwapSession) -> None:
    """The program keeps it until the streams meet, but its old block is used again before."""
    (tensor,) = made(device)
    side = side_of(device)
    with side:
        total = torch.zeros(FLOATS, device=device)
        for _ in range(20):
            total.add_(tensor)
    send_away([tensor], device)
    torch.full((FLOATS,), -1.0, device=device)  # on the block that it left
    torch.accelerator.current_stream(device).wait_stream(side)
    assert float(total.cpu()[0]) == 20.0
    assert float(tensor.cpu()[0]) == 1.0


def test_what_another_stream_has_made_leaves_behind_it(device: torch.device) -> None:
    """Also if it is the first one to do anything, and nothing tells of its results."""
    engine = core.SwapSession(device)
    engine.start()
    engine.end_iteration()  # from the second iteration on, only where memory was short are results looked at
    source = made(device)[0]
    side = side_of(device)
    with side:
        results = [source * number for number in range(1, 4)]
    for each in results:
        torch.zeros_like(each)  # known to the session, but not behind the side stream
    send_away([source, *results], device)
    side.synchronize()
    assert [float(each.cpu()[0]) for each in results] == [1.0, 2.0, 3.0]
    engine.stop()


def test_a_tensor_that_was_lent_by_record_stream_may_leave_and_die(
    device: torch.device, engine: core.SwapSession
) -> None:
    (tensor,) = made(device)
    side = side_of(device)
    tensor.record_stream(side)
    send_away([tensor], device)
    tensor.add_(1)  # back, in another block
    side.wait_stream(torch.accelerator.current_stream(device))
    with side:
        total = torch.zeros(FLOATS, device=device)
        for _ in range(20):
            total.add_(tensor)
    del tensor
    torch.full((FLOATS,), -1.0, device=device)  # would get its block, were it not recorded
    torch.accelerator.current_stream(device).wait_stream(side)
    assert float(total.cpu()[0]) == 40.0


def test_record_stream_alone_is_a_promise_of_use(device: torch.device, engine: core.SwapSession) -> None:
    """By a kernel that no operator tells of, here a copy of the engine's own making."""
    (tensor,) = made(device)
    side = side_of(device)
    with side:
        total = torch.zeros(FLOATS, device=device)
        for _ in range(20):
            total.add_(1)
    tensor.record_stream(side)
    began = side.record_event()
    send_away([tensor], device)
    assert float(tensor.cpu()[0]) == 1.0
    assert began.query(), "it left behind that stream, whose work is done before it is back"


@pytest.fixture
def switching() -> Iterator[Callable[..., torch.Tensor]]:
    """An operator of the program's own that works on another stream inside."""
    library = torch.library.Library("bayplan_streams", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("doubled_beside(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    streams: list[torch.Stream] = []

    def kernel(x: torch.Tensor) -> torch.Tensor:
        side = streams.pop()
        side.wait_stream(torch.accelerator.current_stream(x.device))
        with side:
            total = x * 1
            for _ in range(20):
                total = total + x
        return total

    library.impl("doubled_beside", kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]

    def call(x: torch.Tensor, side: torch.Stream) -> torch.Tensor:
        streams.append(side)
        found: torch.Tensor = torch.ops.bayplan_streams.doubled_beside(x)
        return found

    yield call
    library._destroy()  # type: ignore[no-untyped-call]


def test_operators_may_work_on_other_streams_inside(
    device: torch.device, engine: core.SwapSession, switching: Callable[..., torch.Tensor]
) -> None:
    (tensor,) = made(device)
    side = side_of(device)
    send_away([tensor], device)
    total = switching(tensor, side)
    send_away([tensor, total], device)
    torch.full((FLOATS,), -1.0, device=device)
    torch.accelerator.current_stream(device).wait_stream(side)
    assert float(total.cpu()[0]) == 21.0


def test_another_thread_on_a_stream_of_its_own_is_in_order_too(device: torch.device, engine: core.SwapSession) -> None:
    (tensor,) = made(device)
    side = side_of(device)
    send_away([tensor], device)
    tensor.mul_(1)
    side.wait_stream(torch.accelerator.current_stream(device))
    found: list[torch.Tensor] = []

    def read() -> None:
        with side:
            found.append(tensor + 1)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    send_away(found, device)  # what it made may leave; what it was given stays
    side.synchronize()
    assert float(found[0].cpu()[0]) == 2.0
    assert not core.is_out(tensor)


def test_the_training_may_move_to_another_stream(device: torch.device, engine: core.SwapSession) -> None:
    """From one iteration to the next; nothing of the session's waits by itself for the program to order the two."""
    first, second = made(device, 2)
    send_away([first, second], device)
    first.add_(1)
    other = side_of(device)
    with other:
        engine.end_iteration()
        torch.full((FLOATS,), 7.0, device=device).add_(first)
        second.add_(first)
        send_away([first, second], device)
        second.add_(1)
    torch.accelerator.current_stream(device).wait_stream(other)
    engine.end_iteration()
    assert (float(first.cpu()[0]), float(second.cpu()[0])) == (2.0, 5.0)


def test_when_a_session_ends_other_streams_may_read_at_once(device: torch.device) -> None:
    engine = core.SwapSession(device)
    engine.start()
    (tensor,) = made(device)
    side = side_of(device)
    send_away([tensor], device)
    tensor + 1
    engine.stop()
    with side:
        there = tensor + 2
    side.synchronize()
    assert float(there.cpu()[0]) == 3.0


def test_an_address_is_good_for_every_stream(device: torch.device, engine: core.SwapSession) -> None:
    """Once other streams work, the host waits for a tensor whose address is given away."""
    (tensor,) = made(device)
    side = side_of(device)
    with side:
        torch.ones(FLOATS, device=device).add_(1)
    send_away([tensor], device)
    tensor + 1
    core.hold_storage(tensor.untyped_storage()._cdata, False)
    for race in load("runtime._sim").races():
        raise AssertionError(race)
    alias = torch.empty(0, device=device).set_(tensor.untyped_storage())
    with side:
        there = alias + 2
    side.synchronize()
    assert float(there.cpu()[0]) == 3.0


def test_a_session_comes_down_to_its_budget(device: torch.device, engine: core.SwapSession) -> None:
    tensors = made(device, 6)
    engine.add_resident(tensors)
    in_use = torch.accelerator.memory_allocated()
    assert engine.come_down() == (in_use, in_use, 0)
    engine.set_budget(in_use - 3 * MIB + 5)
    before, after, storages = engine.come_down()
    assert (before, after, storages) == (in_use, in_use - 3 * MIB, 3)
    assert torch.accelerator.max_memory_allocated() == after
    assert sum(core.is_out(each) for each in tensors) == 3
    assert engine.end_iteration().counts.passive == 3
    assert [float(each.cpu()[0]) for each in tensors] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_what_cannot_leave_keeps_the_peak(device: torch.device, engine: core.SwapSession) -> None:
    tensors = made(device, 2)
    for each in tensors:
        core.hold_storage(each.untyped_storage()._cdata, True)
    in_use = torch.accelerator.memory_allocated()
    engine.set_budget(in_use // 2)
    assert engine.come_down() == (in_use, in_use, 0)
    assert torch.accelerator.max_memory_allocated() >= in_use


def test_an_iteration_is_replayed_without_its_swaps(device: torch.device) -> None:
    """Exactly, where each operator is one kernel: the same operators take that long with all memory."""
    use_sim(races="raise")

    def chain(tensors: list[torch.Tensor]) -> None:
        for _ in range(6):
            for each in tensors:
                each.mul_(1.0)

    plain = core.SwapSession(device)
    plain.start()
    tensors = made(device, 6)
    plain.end_iteration()
    chain(tensors)
    alone = plain.end_iteration()
    plain.stop()
    swapping = core.SwapSession(device)
    swapping.start()
    with limited_memory(device, torch.accelerator.memory_allocated() - 2 * MIB):
        swapping.set_budget(torch.accelerator.memory_allocated() - 2 * MIB)
        swapping.add_resident(tensors)
        swapping.come_down()
        swapping.end_iteration()
        swapping.measure_swapping()
        chain(tensors)
        limited = swapping.end_iteration()
    swapping.stop()
    assert limited.counts.swapped_in > 6
    assert limited.duration_us() > 2 * alone.duration_us()
    assert limited.clock.measured and not alone.clock.measured
    assert limited.clock.without_swapping_us() == pytest.approx(alone.duration_us(), rel=0.03)
    with pytest.raises(RuntimeError, match="was not measured"):
        alone.clock.without_swapping_us()
