"""Virtual time: rooflines, links, streams, events, and the host that runs ahead."""

import math

import msgspec
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from runtime.device import SimDevice, use_sim
from solvers.ir.hardware import Device, Hardware, Link
from tests.csrc.sim.conftest import ROUND
from tests.csrc.sim.gpt import Trainer

LAUNCH = 2_000
MIB = 1 << 20


def timed_event() -> torch.Event:
    return torch.Event(device="sim", enable_timing=True)


def square(n: int) -> torch.Tensor:
    return torch.ones(n, n, device="sim")


def roofline_ns(flops: int, bytes_moved: int, efficiency: float) -> int:
    compute = math.ceil(flops * 1e9 / (1e12 * efficiency))
    return max(compute, math.ceil(bytes_moved * 1e9 / (1e11 * efficiency)))


def only_record(sim: SimDevice, op: str) -> int:
    (duration,) = [r.end_ns - r.start_ns for r in sim.trace() if r.op == op]
    return duration


@pytest.mark.parametrize(("n", "bound"), [(256, "compute"), (16, "memory")])
def test_a_matmul_takes_its_roofline(sim: SimDevice, n: int, bound: str) -> None:
    """2·n³ operations at 1 TFLOP/s, 3 matrices at 100 GB/s, both at half efficiency: 256 computes, 16 moves bytes."""
    a, b = square(n), square(n)
    sim.set_tracing(True)
    sim.reset()
    _ = a @ b
    flops, moved = 2 * n**3, 3 * n * n * 4
    assert (flops / 1e12 > moved / 1e11) == (bound == "compute")
    assert only_record(sim, "mm") == roofline_ns(flops, moved, 0.5)
    assert sim.now_ns() == LAUNCH + only_record(sim, "mm")


def test_an_elementwise_kernel_is_bound_by_what_it_reads_and_writes(sim: SimDevice) -> None:
    a = square(512)
    sim.set_tracing(True)
    sim.reset()
    _ = a + a.t()
    a.mul_(2)
    a.zero_()
    matrix = 512 * 512 * 4
    assert only_record(sim, "add") == roofline_ns(0, 3 * matrix, 1.0)
    assert only_record(sim, "mul_") == roofline_ns(0, 2 * matrix, 1.0)
    assert only_record(sim, "zero_") == roofline_ns(0, matrix, 1.0)


def test_a_broadcast_operand_is_read_once(sim: SimDevice) -> None:
    row = torch.ones(1, 512, device="sim").expand(512, 512)
    sim.set_tracing(True)
    sim.reset()
    _ = row + row
    assert only_record(sim, "add") == roofline_ns(0, 512 * 4 + 512 * 512 * 4, 1.0)


def test_a_lookup_reads_only_the_rows_it_returns(sim: SimDevice) -> None:
    table, places = torch.ones(10_000, 64, device="sim"), torch.arange(32, device="sim")
    sim.set_tracing(True)
    sim.reset()
    _ = torch.nn.functional.embedding(places, table)
    assert only_record(sim, "index_select") == roofline_ns(0, 2 * 32 * 64 * 4 + 32 * 8, 1.0)


def test_another_dtype_has_another_rate(sim: SimDevice) -> None:
    a = square(256).to(torch.bfloat16)
    sim.set_tracing(True)
    sim.reset()
    _ = a @ a
    assert only_record(sim, "mm") == math.ceil(2 * 256**3 * 1e9 / (2e12 * 0.5))


def test_views_cost_nothing(sim: SimDevice) -> None:
    a = square(64)
    sim.reset()
    _ = a.t()[1:, ::2].unsqueeze(0).squeeze(0).view(torch.int32)
    _ = a.view(-1).view(32, 128).expand(2, 32, 128).permute(2, 0, 1).detach()
    assert (sim.now_ns(), sim.host_ns(), sim.counters().kernels) == (0, 0, 0)


def test_the_host_runs_ahead_of_the_device(sim: SimDevice) -> None:
    a = square(256)
    sim.reset()
    for _ in range(10):
        torch.mm(a, a, out=torch.empty_like(a))
    assert sim.host_ns() == 10 * LAUNCH
    assert sim.now_ns() == LAUNCH + 10 * roofline_ns(2 * 256**3, 0, 0.5)
    sim.synchronize()
    assert sim.host_ns() == sim.now_ns()


def test_small_kernels_wait_for_the_host(sim: SimDevice) -> None:
    a = torch.ones(1, device="sim")
    sim.reset()
    for _ in range(10):
        a.zero_()
    assert sim.now_ns() == 10 * LAUNCH + 1


def test_reading_a_number_waits_for_it(sim: SimDevice) -> None:
    a = square(256)
    sim.reset()
    total = (a @ a).sum()
    before = sim.now_ns()
    assert total.item() == 256**3
    assert sim.host_ns() == before + 10_000 + 4


def test_a_result_whose_size_depends_on_data_makes_the_host_wait(sim: SimDevice) -> None:
    a = square(256)
    sim.reset()
    _ = (a @ a).nonzero()
    assert sim.host_ns() == sim.now_ns()


def test_a_blocking_copy_makes_the_host_wait(sim: SimDevice) -> None:
    sim.reset()
    torch.ones(MIB, dtype=torch.uint8).to("sim")
    assert sim.host_ns() == sim.now_ns() == LAUNCH + 10_000 + MIB


def test_a_copy_overlaps_with_compute(sim: SimDevice) -> None:
    a, target = square(256), torch.empty(MIB, dtype=torch.uint8, device="sim")
    source = torch.zeros(MIB, dtype=torch.uint8).pin_memory()
    side = torch.Stream(device="sim")
    sim.synchronize()
    sim.reset()
    with side:
        target.copy_(source, non_blocking=True)
    for _ in range(20):
        _ = a @ a
    compute, transfer = 20 * roofline_ns(2 * 256**3, 0, 0.5), 10_000 + MIB
    assert sim.stream_ns(side) == LAUNCH + transfer
    assert sim.now_ns() == 2 * LAUNCH + compute
    sim.synchronize()
    assert sim.host_ns() == max(LAUNCH + transfer, 2 * LAUNCH + compute)


@pytest.mark.parametrize("duplex", ["full", "half"])
def test_directions_share_a_half_duplex_link(sim: SimDevice, duplex: str) -> None:
    link = msgspec.structs.replace(ROUND.links[0], duplex=duplex)
    sim = use_sim(msgspec.structs.replace(ROUND, links=(link,)))
    source, target = (torch.zeros(MIB, dtype=torch.uint8).pin_memory() for _ in range(2))
    there, back = (torch.zeros(MIB, dtype=torch.uint8, device="sim") for _ in range(2))
    out, in_ = torch.Stream(device="sim"), torch.Stream(device="sim")
    sim.synchronize()
    sim.reset()
    with in_:
        there.copy_(source, non_blocking=True)
    with out:
        target.copy_(back, non_blocking=True)
    transfer = 10_000 + MIB
    assert sim.stream_ns(in_) == LAUNCH + transfer
    assert sim.stream_ns(out) == (2 * LAUNCH + transfer if duplex == "full" else LAUNCH + 2 * transfer)
    sim.synchronize()


def test_one_direction_carries_one_copy_at_a_time(sim: SimDevice) -> None:
    source = torch.zeros(MIB, dtype=torch.uint8).pin_memory()
    targets = [torch.empty(MIB, dtype=torch.uint8, device="sim") for _ in range(2)]
    streams = [torch.Stream(device="sim") for _ in range(2)]
    sim.reset()
    for stream, target in zip(streams, targets, strict=True):
        with stream:
            target.copy_(source, non_blocking=True)
    assert [sim.stream_ns(s) for s in streams] == [LAUNCH + 10_000 + MIB, LAUNCH + 2 * (10_000 + MIB)]
    sim.synchronize()


def test_unequal_directions_are_two_links(sim: SimDevice) -> None:
    links = (
        Link(a="host", b="0", bytes_per_s=2_000_000_000, duplex="simplex"),
        Link(a="0", b="host", bytes_per_s=500_000_000, duplex="simplex"),
    )
    sim = use_sim(msgspec.structs.replace(ROUND, links=links))
    a = torch.zeros(MIB, dtype=torch.uint8).to("sim")
    assert sim.host_ns() == LAUNCH + MIB // 2
    sim.reset()
    a.cpu()
    assert sim.host_ns() == LAUNCH + 2 * MIB


def test_an_event_is_reached_when_the_hosts_clock_is_there(sim: SimDevice) -> None:
    a, event = square(256), timed_event()
    sim.reset()
    _ = a @ a
    event.record()
    assert not event.query()
    event.synchronize()
    assert sim.host_ns() == sim.now_ns()
    assert event.query()


def test_polling_an_event_ends(sim: SimDevice) -> None:
    a, event = square(256), timed_event()
    sim.reset()
    _ = a @ a
    event.record()
    polls = 0
    while not event.query():
        polls += 1
    assert polls == math.ceil((sim.now_ns() - LAUNCH) / 1000)


def test_elapsed_time_is_the_clocks(sim: SimDevice) -> None:
    a, first, second = square(256), timed_event(), timed_event()
    sim.synchronize()
    sim.reset()
    first.record()
    _ = a @ a
    second.record()
    second.synchronize()
    assert first.elapsed_time(second) * 1e6 == pytest.approx(LAUNCH + roofline_ns(2 * 256**3, 0, 0.5), abs=1e-3)


def test_a_stream_that_waits_takes_the_later_clock(sim: SimDevice) -> None:
    a, side = square(256), torch.Stream(device="sim")
    sim.reset()
    b = a @ a
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        c = b + b
    assert sim.stream_ns(side) == sim.now_ns() + roofline_ns(0, 2 * 256 * 256 * 4, 1.0)
    torch.accelerator.current_stream().wait_stream(side)
    assert c.sum().item() == 2 * 256**3


def test_an_event_of_before_the_reset_lies_in_the_past(sim: SimDevice) -> None:
    a, event = square(256), timed_event()
    _ = a @ a
    event.record()
    sim.reset()
    assert event.query()
    torch.accelerator.current_stream().wait_event(event)
    assert sim.now_ns() == 0


def test_two_runs_take_the_same_time_to_the_nanosecond(sim: SimDevice) -> None:
    def run() -> tuple[int, int]:
        trainer = Trainer("sim")
        sim.reset()
        trainer.run()
        return sim.host_ns(), sim.now_ns()

    assert run() == run()


def test_noise_is_seeded_and_bounded(sim: SimDevice) -> None:
    def durations(seed: int, noise: float) -> list[int]:
        device = use_sim(ROUND, noise=noise, seed=seed)
        a = square(256)
        device.reset()
        device.set_tracing(True)
        for _ in range(200):
            _ = a @ a
        return [r.end_ns - r.start_ns for r in device.trace()]

    exact = durations(0, 0.0)[0]
    noisy = durations(1, 0.1)
    assert noisy == durations(1, 0.1)
    assert noisy != durations(2, 0.1)
    assert 0.9 * exact - 1 <= min(noisy) < 0.92 * exact and 1.08 * exact < max(noisy) <= 1.1 * exact + 1
    assert abs(sum(noisy) / len(noisy) / exact - 1) < 0.02


def flop_machine() -> SimDevice:
    """A machine on which a nanosecond is one operation and bytes are free."""
    device = Device(name="0", memory_bytes=1 << 30, flops_per_s={"float32": 1_000_000_000}, bytes_per_s=10**18)
    return use_sim(Hardware(name="flops", devices=(device,), links=ROUND.links))


def counted_on_sim(sim: SimDevice) -> int:
    return sum(r.end_ns - r.start_ns for r in sim.trace() if r.kind in ("matmul", "attention", "convolution"))


def convolutions(device: str) -> None:
    for net in (torch.nn.Conv2d(4, 6, 3, stride=2), torch.nn.ConvTranspose2d(4, 6, 3, stride=2)):
        image = torch.ones(2, 4, 9, 9, device=device, requires_grad=True)
        net.to(device)(image).sum().backward()


def products(device: str) -> None:
    a, b = (torch.ones(3, 8, 8, device=device, requires_grad=True) for _ in range(2))
    (torch.baddbmm(a, a, b) @ b).sum().backward()  # type: ignore[no-untyped-call]
    torch.nn.Linear(8, 5).to(device)(a).sum().backward()
    torch.addmm(a[0], a[1], b[1]).mv(b[0, 0]).dot(a[0, 0]).backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("program", [convolutions, products], ids=["convolutions", "products"])
def test_arithmetic_is_what_torch_counts(sim: SimDevice, program: object) -> None:
    assert callable(program)
    sim = flop_machine()
    sim.set_tracing(True)
    program("sim")
    mine = counted_on_sim(sim)
    with FlopCounterMode(display=False) as counter:
        program("cpu")
    uncounted = 2 * 8 * 8 * 3 + 2 * 8 if program is products else 0  # mv, its two gradients, dot: torch counts none
    assert mine == pytest.approx(counter.get_total_flops() + uncounted, rel=0.02)


def test_a_grouped_convolution_counts_the_channels_it_reads(sim: SimDevice) -> None:
    """Each of 2·6·4·4 outputs adds up 4/2 channels of a 3x3 window; each gradient costs the same again."""
    sim = flop_machine()
    net = torch.nn.Conv2d(4, 6, 3, stride=2, groups=2).to("sim")
    image = torch.ones(2, 4, 9, 9, device="sim", requires_grad=True)
    sim.set_tracing(True)
    net(image).sum().backward()
    once = 2 * (2 * 6 * 4 * 4) * (2 * 3 * 3)
    assert [r.end_ns - r.start_ns for r in sim.trace() if r.kind == "convolution"] == [once, 2 * once]


def test_attention_counts_two_products_forward_and_five_backward(sim: SimDevice) -> None:
    sim = flop_machine()
    query, key, value = (torch.ones(2, 3, 16, 8, device="sim", requires_grad=True) for _ in range(3))
    sim.set_tracing(True)
    torch.nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()  # type: ignore[no-untyped-call]
    once = 2 * 2 * 3 * 16 * 16 * 8
    assert [r.end_ns - r.start_ns for r in sim.trace() if r.kind == "attention"] == [2 * once, 5 * once]


def test_backward_runs_on_the_forwards_stream(sim: SimDevice) -> None:
    side = torch.Stream(device="sim")
    sim.set_tracing(True)
    with side:
        a = torch.ones(8, 8, device="sim", requires_grad=True)
        loss = (a @ a).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    assert {r.stream for r in sim.trace() if r.op == "mm"} == {side.stream_id}
    assert torch.accelerator.current_stream().stream_id == 0
    sim.synchronize()


def test_a_trace_names_what_the_program_was_doing(sim: SimDevice) -> None:
    sim.set_tracing(True)
    with sim.label("first"):
        a = torch.ones(4, device="sim")
        with sim.label("inner"):
            a.zero_()
        a.cpu()
    a.zero_()
    assert [(r.op, r.label, r.kind) for r in sim.trace()] == [
        ("fill_", "first", "copy"),
        ("zero_", "inner", "copy"),
        ("copy to host", "first", "to host"),
        ("zero_", "", "copy"),
    ]
