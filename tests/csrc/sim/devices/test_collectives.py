"""Parts of collectives: their time, their order, and bytes that arrive late on every device."""

import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from runtime.device import SimDevice
from runtime.device.native import load
from tests.csrc.sim.devices.conftest import LAUNCH

Machine = Callable[..., SimDevice]
NS = 5_000


class Group:
    """All-reduces between all devices, on a stream of each."""

    def __init__(self, devices: int) -> None:
        self.native = load("runtime._sim")
        self.streams = [torch.Stream(device=f"sim:{index}") for index in range(devices)]

    def issue(self, member: int, tensor: Tensor) -> int:
        """The member's part, behind its current stream."""
        current = torch.accelerator.current_stream(member)
        self.native.stream_wait_stream(self.streams[member].stream_id, current.stream_id)
        return int(self.native.comm_issue(self.streams[member].stream_id, [tensor], [tensor], "all_reduce"))

    def finish(self, start_ns: int, tensors: list[Tensor]) -> None:
        """Sums what the members have, for `NS` nanoseconds."""
        seen = [self.native.alias(tensor) for tensor in tensors]
        moves = [] if seen[0] is None else [(i, tensor, sum(seen)) for i, tensor in enumerate(tensors)]
        ids = [stream.stream_id for stream in self.streams]
        self.native.comm_finish(ids, "all_reduce", start_ns, start_ns + NS, tensors[0].nbytes, moves)

    def wait(self, member: int) -> None:
        """Lets the member's current stream wait for its part."""
        torch.accelerator.current_stream(member).wait_stream(self.streams[member])


def _tensors(devices: int) -> list[Tensor]:
    return [torch.full((4,), 10.0**index, device=f"sim:{index}") for index in range(devices)]


def test_all_members_end_together_and_have_the_sum(machine: Machine) -> None:
    sim = machine(devices=3)
    sim.set_tracing(True)
    group, tensors = Group(3), _tensors(3)
    starts = [group.issue(member, tensor) for member, tensor in enumerate(tensors)]
    assert starts == [(3 + member + 1) * LAUNCH for member in range(3)]
    group.finish(max(starts), tensors)
    for member in range(3):
        group.wait(member)
        assert sim.at(member).now_ns() == sim.stream_ns(group.streams[member]) == max(starts) + NS
        (record,) = [one for one in sim.at(member).trace() if one.kind == "comm"]
        assert (record.op, record.end_ns, record.bytes) == ("all_reduce", max(starts) + NS, 16)
    assert [tensor.add(0).tolist() for tensor in tensors] == [[111.0] * 4] * 3
    assert sim.races() == []


def test_who_forgets_to_wait_reads_the_old_numbers_on_every_device(machine: Machine) -> None:
    sim = machine(races="record")
    group, tensors = Group(2), _tensors(2)
    starts = [group.issue(member, tensor) for member, tensor in enumerate(tensors)]
    group.finish(max(starts), tensors)
    assert [tensor.add(0).tolist()[0] for tensor in tensors] == [1.0, 10.0]
    assert [(race.first.op, race.second.op, race.second.device) for race in sim.races()] == [
        ("all_reduce", "add", 0),
        ("all_reduce", "add", 1),
    ]
    group.wait(1)
    assert tensors[1].add(0).tolist()[0] == 11.0
    assert tensors[0].add(0).tolist()[0] == 1.0  # its own device has still not waited
    sim.synchronize()
    assert tensors[0].tolist()[0] == 11.0


def test_parts_of_one_stream_are_finished_in_order(machine: Machine) -> None:
    """The second all-reduce was issued before the first was finished, and sums what that gives."""
    machine()
    group, tensors = Group(2), _tensors(2)
    start = [max(group.issue(member, tensor) for member, tensor in enumerate(tensors)) for _ in range(2)]
    group.finish(start[0], tensors)
    group.finish(start[0] + NS, tensors)
    group.wait(0)
    assert tensors[0].tolist() == [22.0] * 4
    with pytest.raises(RuntimeError, match=r"no collective was issued on stream \d+ of sim:0 that 'all_reduce' could"):
        group.finish(0, tensors)


def test_past_of_all_members_is_common_afterwards(machine: Machine) -> None:
    """What one device did before is ordered with what another does after, as when a send follows."""
    sim = machine()
    group, tensors, far = Group(2), _tensors(2), torch.zeros(4, device="sim:1")
    side = torch.Stream(device="sim:0")
    far.add_(1)
    starts = [group.issue(member, tensor) for member, tensor in enumerate(tensors)]
    group.finish(max(starts), tensors)
    side.wait_stream(group.streams[0])
    load("runtime._sim").comm_issue(side.stream_id, [far], [], "fetch")
    load("runtime._sim").comm_finish([side.stream_id], "fetch", 0, 1, 16, [])
    assert sim.races() == []


def test_the_host_sleeps_until_the_others_have_come(machine: Machine) -> None:
    """As on a GPU, a device is not done while a collective waits for its other members."""
    sim = machine()
    group, tensors = Group(2), _tensors(2)
    first = group.issue(0, tensors[0])
    arrived = []

    def late() -> None:
        time.sleep(0.05)
        start = max(first, group.issue(1, tensors[1]))
        arrived.append(start + NS)
        group.finish(start, tensors)

    other = threading.Thread(target=late)
    other.start()
    torch.accelerator.synchronize(0)
    assert [sim.at(0).host_ns()] == arrived
    other.join()
    assert tensors[0].tolist() == [11.0] * 4


def test_shapes_only_has_the_same_times(machine: Machine) -> None:
    sim = machine(shapes_only=True)
    group, tensors = Group(2), _tensors(2)
    assert group.native.alias(tensors[0]) is None
    starts = [group.issue(member, tensor) for member, tensor in enumerate(tensors)]
    group.finish(max(starts), tensors)
    group.wait(1)
    assert sim.at(1).now_ns() == max(starts) + NS
