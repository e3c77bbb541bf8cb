"""What the host itself does with page-locked memory comes after the copies that it waited for, else it is a race."""

from collections.abc import Callable

import pytest
import torch

from runtime.device import SimDevice, host_access, use_sim
from solvers.ir.errors import InvalidInput
from tests.csrc.sim.conftest import ROUND

N = 4096


class Link:
    """A tensor on each side, and asynchronous copies between them on a stream."""

    def __init__(self) -> None:
        self.device = torch.ones(N, dtype=torch.uint8, device="sim")
        self.host = torch.zeros(N, dtype=torch.uint8).pin_memory()
        self.lane = torch.Stream(device="sim")
        torch.accelerator.synchronize()

    def down(self) -> torch.Event:
        with self.lane:
            self.host.copy_(self.device, non_blocking=True)
            return self.lane.record_event()

    def up(self) -> torch.Event:
        with self.lane:
            self.device.copy_(self.host, non_blocking=True)
            return self.lane.record_event()


@pytest.fixture
def recording(sim: SimDevice) -> SimDevice:
    sim.reset()
    return use_sim(ROUND, races="record")


def found(sim: SimDevice) -> list[tuple[str, str]]:
    torch.accelerator.synchronize()
    return [(race.first.op, race.second.op) for race in sim.races()]


def test_a_forgotten_synchronize_is_named_and_reads_stale_bytes(recording: SimDevice) -> None:
    link = Link()
    link.down()
    recording.host_access(link.host[: N // 2], write=False, name="norm of the gradients")
    assert link.host.eq(0).all()
    (race,) = recording.races()
    assert (race.first.op, race.first.write, race.first.stream) == ("copy to host", True, link.lane.stream_id)
    assert (race.second.op, race.second.write, race.second.end) == ("norm of the gradients", False, N // 2)
    assert race.sentence.startswith("race on a pinned block of 4096 bytes: read by 'norm of the gradients' (operation ")
    assert "of the host, bytes 0-2048) is not ordered after write by 'copy to host'" in race.sentence
    assert f"let the host wait for an event recorded on stream {link.lane.stream_id} after" in race.sentence


@pytest.mark.parametrize(
    "wait",
    [
        lambda link, event: event.synchronize(),
        lambda link, event: link.lane.synchronize(),
        lambda link, event: torch.accelerator.synchronize(),
        lambda link, event: link.device.sum().item() and event.synchronize(),
        lambda link, event: [None for _ in iter(event.query, True)],
    ],
    ids=["event", "stream", "device", "item and event", "polling"],
)
def test_every_way_to_wait_is_one(recording: SimDevice, wait: Callable[[Link, torch.Event], object]) -> None:
    link = Link()
    wait(link, link.down())
    recording.host_access(link.host, write=True)
    assert found(recording) == []
    assert link.host.eq(1).all()


def test_a_wait_for_another_stream_is_none(recording: SimDevice) -> None:
    link = Link()
    link.down()
    torch.accelerator.current_stream().synchronize()
    recording.host_access(link.host, write=False)
    assert found(recording) == [("copy to host", "host access")]


def test_what_the_host_did_comes_before_what_it_launches(recording: SimDevice) -> None:
    link = Link()
    recording.host_access(link.host, write=True)
    link.up().synchronize()
    recording.host_access(link.host, write=True)
    link.up()
    assert found(recording) == []


def test_writing_what_an_upload_still_reads_is_a_race_and_reading_is_none(recording: SimDevice) -> None:
    link = Link()
    link.up()
    recording.host_access(link.host, write=False)
    assert recording.races() == []
    recording.host_access(link.host, write=True)
    assert found(recording) == [("copy to device", "host access")]


def test_raised_at_the_access(sim: SimDevice) -> None:
    link = Link()
    link.down()
    with pytest.raises(RuntimeError, match=r"read by 'host access' .* of the host, .* is not ordered after write by"):
        sim.host_access(link.host, write=False)
    torch.accelerator.synchronize()


def test_off_is_silent(sim: SimDevice) -> None:
    sim = use_sim(ROUND, races="off")
    link = Link()
    link.down()
    with sim.checking_host():
        sim.host_access(link.host.add_(1), write=False)
    assert found(sim) == []


def test_pageable_memory_is_nobodys_concern_and_the_devices_is_refused(recording: SimDevice) -> None:
    recording.host_access(torch.zeros(3), write=True)
    host_access(torch.zeros(3), write=True)
    with pytest.raises(InvalidInput, match="name the page-locked tensor"):
        host_access(torch.zeros(3, device="sim"), write=False)
    assert recording.races() == []


def test_the_portable_form_is_the_current_devices(recording: SimDevice) -> None:
    link = Link()
    link.down()
    host_access(link.host, write=False)
    assert found(recording) == [("copy to host", "host access")]


def test_tasks_and_their_launcher_are_ordered_by_events_only(recording: SimDevice) -> None:
    """The launcher's past is the task's; the task is the launcher's past once its event was waited for."""
    link = Link()
    recording.host_access(link.host, write=True)
    done = recording.host_task(1_000, writes=[link.host])
    recording.host_task(1_000, writes=[link.host])  # one worker: in order
    done.synchronize()
    recording.host_access(link.host, write=False)
    assert found(recording) == [("host task", "host access")]
    assert "let the host wait for the event of the host task that did the first" in recording.races()[0].sentence


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "watched"])
def test_a_task_that_forgets_its_event_is_named(recording: SimDevice, declared: bool) -> None:
    link = Link()
    ready = link.down()
    reads, work = ([link.host], None) if declared else ([], lambda: link.host.max())
    done = recording.host_task(1_000, ready, reads=reads, work=work)
    link.lane.wait_event(done)
    link.down()
    assert recording.races() == []
    recording.host_task(1_000, reads=reads, work=work)
    assert found(recording) == [("copy to host", "host task" if declared else "max")]
    assert "let the host task begin after an event recorded on stream" in recording.races()[0].sentence


WATCHED: dict[str, tuple[Callable[[torch.Tensor], object], list[str]]] = {
    "in place": (lambda host: host.add_(1), ["add_"]),
    "a part": (lambda host: host[::2].add_(1), ["add_"]),
    "an element": (lambda host: host[3].item(), ["_local_scalar_dense"]),
    "a copy into it": (lambda host: host.copy_(torch.ones(N, dtype=torch.uint8)), ["copy_"]),
    "a clone": (lambda host: host.clone(), ["copy_"]),
    "out": (lambda host: torch.add(torch.ones(N, dtype=torch.uint8), 1, out=host), ["add"]),
    "a list": (lambda host: torch._foreach_add_([torch.ones(2), host], 1), ["add_"]),
    "a result": (lambda host: torch.cat([host, host]), ["cat"]),
    "views": (lambda host: host.view(2, -1).t().unsqueeze(0).expand(3, -1, -1).detach(), []),
    "its shape": (lambda host: (host.shape, torch.empty_like(host), host.is_pinned()), []),
}


@pytest.mark.parametrize("case", WATCHED)
def test_watched_operators_are_the_hosts_accesses(recording: SimDevice, case: str) -> None:
    operate, names = WATCHED[case]
    link = Link()
    link.down()
    operate(link.host)  # nobody looks
    torch.accelerator.synchronize()
    link.down()
    with recording.checking_host():
        operate(link.host)
    assert list(dict.fromkeys(found(recording))) == [("copy to host", name) for name in names]


def test_copies_of_the_device_stay_the_devices(recording: SimDevice) -> None:
    link = Link()
    with recording.checking_host(), link.lane:
        link.host.copy_(link.device, non_blocking=True)
        link.device.copy_(link.host, non_blocking=True)
        link.host.to("sim", non_blocking=True)
    assert found(recording) == []


def test_watching_raises_at_its_end_at_the_latest_and_ends_with_its_outermost(sim: SimDevice) -> None:
    link = Link()
    link.down()
    with pytest.raises(RuntimeError, match=r"'add_' .* of the host, "), sim.checking_host():
        with sim.checking_host():
            pass
        link.host.add_(1)
    link.down()
    link.host.add_(1)
    torch.accelerator.synchronize()
    assert len(sim.races()) == 1
