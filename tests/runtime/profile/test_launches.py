"""What launching costs: as the simulated device tells it, and as it is estimated from two clocks."""

import pytest
import torch

from runtime.device import SimDevice
from runtime.profile import profile_step
from runtime.profile.launches import Measured, from_clocks, launches
from solvers.ir.graph import Launch, Op

US = 1000


def launched(op: Op) -> Launch:
    assert isinstance(op.launch, Launch), op
    return op.launch


def test_short_kernels_wait_for_launches_and_long_ones_do_not(sim: SimDevice) -> None:
    """The launch takes 5 us (`sim`'s default); what an operator takes of the device does not depend on that."""
    small, large = torch.ones(256, device="sim"), torch.ones(1 << 22, device="sim")

    def step() -> None:
        for _ in range(4):
            small.mul_(2.0)
        large.mul_(2.0)
        small.mul_(2.0)

    graph = profile_step(step, "sim", warmup=0)
    launch = sim.hardware.device().launch_us
    assert all(launched(op).host_us == launch for op in graph.ops)
    assert all(launched(op).tail_us is None and not launched(op).host_waits for op in graph.ops)
    waiting, long = graph.ops[1], graph.ops[4]
    assert launched(waiting).device_us < 1 < launch == waiting.time_us
    assert launched(long).device_us > 10 * launch
    assert sum(launched(op).device_us for op in graph.ops) < sum(op.time_us for op in graph.ops)


@pytest.mark.usefixtures("sim")
def test_an_operator_of_many_kernels_has_a_tail_and_item_makes_the_host_wait() -> None:
    values = [torch.ones(1 << 12, device="sim") for _ in range(8)]

    def step() -> None:
        torch._foreach_mul_(values, 2.0)
        values[0].sum().item()
        values[0].mul_(2.0)

    many, total, item, last = (launched(op) for op in profile_step(step, "sim", warmup=0).ops)
    assert many.host_us == 8 * total.host_us
    assert many.tail_us is not None
    assert many.tail_us < many.device_us or many.device_us <= 1
    assert [one.host_waits for one in (many, total, item, last)] == [False, False, True, False]


def test_a_cpu_has_no_launches() -> None:
    value = torch.ones(16)
    graph = profile_step(lambda: value.mul_(2.0), "cpu", warmup=0)
    assert all(not isinstance(op.launch, Launch) for op in graph.ops)


def test_two_clocks_tell_apart_who_waited() -> None:
    """µs. Two of 3 behind launches of 10 each; one of 100, behind which 5 and 7 need not wait; then item()."""
    device = [13, 23, 130, 135, 142, 150, 150]
    host = [10, 20, 30, 40, 50, 152, 152]
    names = ["a", "b", "c", "d", "e", "aten::item"]
    found = from_clocks([moment * US for moment in device], [moment * US for moment in host], names)
    assert [one.device_ns // US for one in found] == [13, 10, 107, 5, 7, 8]
    assert [one.host_ns // US for one in found] == [10, 10, 10, 10, 10, 10]
    assert [one.host_waits for one in found] == [False] * 5 + [True]
    written = launches(found)
    # Where the host was late the operator ended 3 us after its launch; where it was not, its own time says all.
    assert [one.tail_us for one in written] == [3, 3, 100, None, None, None]
    assert [one.host_us for one in written] == [10] * 6


def test_rounding_never_adds_up() -> None:
    written = launches([Measured(300, 4400, 4700, host_waits=False)] * 100)
    assert sum(one.device_us for one in written) == 30
    assert sum(one.host_us for one in written) == 440
    assert all(one.tail_us is None for one in written)
