"""A session for each device: one thread that trains on two of them, and threads that each train on one."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import nn

from runtime.device import CachingAllocator, use_sim
from runtime.device.native import core
from runtime.profile.recording import detailed_recording
from runtime.swap import SessionReport, session
from runtime.swap.stages import StageSettings
from solvers.ir.errors import InvalidInput
from tests.accelerators import prepare_sim

REFUSED = prepare_sim()
DEVICES = (torch.device("sim", 0), torch.device("sim", 1))
SOON = StageSettings(warm_up_iterations=0, policies=2)
STEPS = 8
KIB = 1 << 10
drawing = threading.Lock()  # random numbers belong to the process


@pytest.fixture(autouse=True)
def two_devices() -> Iterator[None]:
    if REFUSED is not None:
        pytest.skip(REFUSED)
    use_sim(devices=2)
    yield
    torch.accelerator.set_device_index(0)
    assert core.swapped_out_storages() == 0
    assert not core.swap_guard_is_on()
    assert core.host_stats().held_bytes == 0
    use_sim()


class Halves(nn.Module):
    """The first half of the layers on one device, the second on the other."""

    def __init__(self, devices: Sequence[torch.device], width: int) -> None:
        super().__init__()
        self.devices = tuple(devices)
        self.halves = nn.ModuleList(
            nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(width, width), nn.GELU())]).to(device)
            for device in devices
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for device, half in zip(self.devices, self.halves, strict=True):
            hidden = half(hidden.to(device))
        return hidden


@dataclass(frozen=True)
class Trained:
    """Losses, gradients and parameters; peaks and reports by device; virtual nanoseconds."""

    losses: list[torch.Tensor]
    tensors: list[torch.Tensor]
    peaks: list[int]
    reports: list[SessionReport]

    def equals(self, other: "Trained") -> bool:
        mine, others = [*self.losses, *self.tensors], [*other.losses, *other.tensors]
        return all(torch.equal(one, another) for one, another in zip(mine, others, strict=True))


def trained(
    devices: Sequence[torch.device], budgets: Sequence[int | None], rows: int = 256, width: int = 96
) -> Trained:
    """A few steps of AdamW, each device within its budget or without."""
    with drawing, torch.random.fork_rng([]):
        torch.manual_seed(2)
        model = Halves(devices, width)
        batches = [torch.randn(rows, width) for _ in range(STEPS)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
    for device in devices:
        torch.accelerator.reset_peak_memory_stats(device)
    losses = []
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(session(budget, device=device, stages=SOON))
            for device, budget in zip(devices, budgets, strict=True)
            if budget is not None
        ]
        for batch in batches:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        reports = [following.report() for following in sessions]
        peaks = [torch.accelerator.max_memory_allocated(device) for device in devices]
    values = [tensor.detach().cpu() for p in model.parameters() for tensor in (p, p.grad) if tensor is not None]
    return Trained([loss.cpu() for loss in losses], values, peaks, reports)


@cache
def free() -> Trained:
    return trained(DEVICES, [None, None])


@pytest.mark.parametrize("shares", [(0.6, 0.6), (0.6, None), (None, 0.6), (0.75, 0.5)])
def test_one_thread_trains_on_two_devices_each_within_its_budget(shares: tuple[float | None, float | None]) -> None:
    """What passes from one to the other leaves and returns on both; autograd serves each device with a thread."""
    budgets = [None if share is None else int(share * peak) for share, peak in zip(shares, free().peaks, strict=True)]
    limited = trained(DEVICES, budgets)
    assert limited.equals(free())
    for peak, budget, unlimited in zip(limited.peaks, budgets, free().peaks, strict=True):
        assert peak <= (budget or unlimited)
    for report in limited.reports:
        assert report.iterations == STEPS
        assert report.counts.in_time > 0
        assert any(policy.kept for policy in report.policies)
        assert not [remark for remark in report.remarks if "recorded" in remark]  # both record at once


def test_on_segments_too() -> None:
    """Where the allocator asks once, with its lock held, and does not say how much it lacks; by shapes alone."""
    use_sim(devices=2, allocator=CachingAllocator(), shapes_only=True)
    shape = {"rows": 4096, "width": 512}
    unlimited = trained(DEVICES, [None, None], **shape)
    budgets = [int(0.75 * peak) for peak in unlimited.peaks]
    limited = trained(DEVICES, budgets, **shape)
    assert limited.equals(unlimited)
    for report, budget in zip(limited.reports, budgets, strict=True):
        assert report.reserved_peak_bytes is not None
        assert report.reserved_peak_bytes <= budget
        assert report.counts.swapped_out > 0
        assert report.waits_under_lock == 0


def together(*bodies: Callable[[], None]) -> None:
    """Each on a thread of its own, at once; raises what the first of them raised."""
    errors: list[BaseException] = []

    def noted(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=noted, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def alone(device: torch.device, budget: int | None, into: dict[torch.device, Trained]) -> Callable[[], None]:
    """A thread's work: both halves on one device, which is its current one."""

    def body() -> None:
        torch.accelerator.set_device_index(device.index)
        into[device] = trained([device, device], [budget, None])

    return body


def test_threads_train_at_once_each_on_its_device_within_its_budget() -> None:
    """They take no turns here: both are inside operators, ask for memory and swap at the same time."""
    unlimited: dict[torch.device, Trained] = {}
    for device in DEVICES:
        together(alone(device, None, unlimited))
    budgets = {device: int(0.6 * unlimited[device].peaks[0]) for device in DEVICES}
    for _ in range(2):
        limited: dict[torch.device, Trained] = {}
        together(*(alone(device, budgets[device], limited) for device in DEVICES))
        for device in DEVICES:
            assert limited[device].equals(unlimited[device])
            assert limited[device].peaks[0] <= budgets[device]
            report = limited[device].reports[0]
            assert report.counts.in_time > 0
            assert report.iterations == STEPS


def test_a_thread_without_a_session_is_nobody_s_iteration() -> None:
    """Its backward passes run on autograd's thread for its device, which works for no session then."""
    first, second = DEVICES
    unlimited: dict[torch.device, Trained] = {}
    together(alone(first, None, unlimited))
    quiet: dict[torch.device, Trained] = {}
    budget = int(0.6 * unlimited[first].peaks[0])
    together(alone(first, budget, quiet))
    busy: dict[torch.device, Trained] = {}

    def beside() -> None:
        torch.accelerator.set_device_index(second.index)
        weight = torch.ones(64, 64, device=second, requires_grad=True)
        while first not in busy:
            (weight @ weight).mean().backward()  # type: ignore[no-untyped-call]

    together(alone(first, budget, busy), beside)
    assert busy[first].equals(unlimited[first])
    assert busy[first].reports[0].counts == quiet[first].reports[0].counts


def test_a_device_follows_one_thread_at_a_time() -> None:
    with session("8MiB", device=DEVICES[0]) as outer:

        def start() -> None:
            session("4MiB", device=DEVICES[0])

        with pytest.raises(InvalidInput, match="of another thread is active on device sim:0"):
            together(start)
        with session("4MiB", device=DEVICES[1]) as beside:
            with session("4MiB", device=DEVICES[0]) as inner:
                assert (outer.active, inner.active, beside.active) == (False, True, True)
            assert (outer.active, beside.active) == (True, True)


def test_page_locked_memory_has_a_limit_for_each_device() -> None:
    """What one may not page-lock the other may: its tensors stay, and a remark says why."""
    tight, wide = 64 * KIB, 1024 * KIB
    tensors = {device: [torch.full((8 * KIB,), 1.0, device=device) for _ in range(8)] for device in DEVICES}
    with session("8MiB", device=DEVICES[0], host_limit_bytes=tight):
        with session("8MiB", device=DEVICES[1], host_limit_bytes=wide):
            for tensor in tensors[DEVICES[1]]:
                core.swap_out(tensor)
            core.swap_out(tensors[DEVICES[0]][0])
            with pytest.raises(RuntimeError, match=f"host_limit_bytes={tight}"):
                for tensor in tensors[DEVICES[0]][1:]:
                    core.swap_out(tensor)
            held = [core.host_stats(device).used_bytes for device in DEVICES]
            assert held[0] <= tight
            assert held[1] == 8 * 32 * KIB
            assert core.host_stats().used_bytes == sum(held)
        assert core.host_stats(DEVICES[1]).held_bytes == 0
        assert core.host_stats(DEVICES[0]).held_bytes > 0
    assert all(tensor.sum().item() == 8 * KIB for device in DEVICES for tensor in tensors[device])


def test_an_operator_on_two_devices_brings_back_what_it_needs_on_both() -> None:
    source, target = (torch.full((4 * KIB,), float(device.index + 1), device=device) for device in DEVICES)
    for followed in ([], [0], [1], [0, 1]):
        with ExitStack() as stack:
            for index in followed:
                stack.enter_context(session("1MiB", device=DEVICES[index]))
            core.swap_out(source)
            core.swap_out(target)
            target.copy_(source)
            assert (core.is_out(source), core.is_out(target)) == (False, False)
            assert target.eq(1).all()
            target.fill_(2)


def test_two_recordings_of_a_thread_see_its_operators_each_with_its_own_device_s_memory() -> None:
    with detailed_recording(DEVICES[0]) as first, detailed_recording(DEVICES[1]) as second:
        here = torch.ones(KIB, device=DEVICES[0])
        there = (here + here).to(DEVICES[1])
        there.mul_(2)
        del here
    names = [[record.name for record in recorder.operators()] for recorder in (first, second)]
    assert names[0] == names[1]
    assert "aten::mul_.Tensor" in names[0]
    assert [len(recorder.storages()) for recorder in (first, second)] == [2, 1]
    blocks = [{block for block, *_ in recorder.requests()} for recorder in (first, second)]
    assert min(map(len, blocks)) > 0
    assert not blocks[0] & blocks[1]


def test_recordings_of_two_threads_see_their_own_operators() -> None:
    counted: dict[int, list[str]] = {}
    started = threading.Barrier(2)

    def record(device: torch.device) -> Callable[[], None]:
        def body() -> None:
            torch.accelerator.set_device_index(device.index)
            value = torch.ones(KIB, device=device)
            with detailed_recording(device) as recorder:
                started.wait()
                for _ in range(50):
                    value.add_(1) if device.index else value.mul_(2)
                started.wait()
            counted[device.index] = [record.name for record in recorder.operators()]

        return body

    together(*(record(device) for device in DEVICES))
    assert counted == {0: ["aten::mul_.Tensor"] * 50, 1: ["aten::add_.Tensor"] * 50}
