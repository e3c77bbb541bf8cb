"""Parameters on the host, updated there: of a chunk's round trip every dropped wait is named, the host's included."""

import pytest
import torch
from torch import nn

from runtime.device import SimDevice, use_sim
from tests.csrc.sim.conftest import ROUND

N, CHUNKS, STEPS = 1024, 2, 3


class Chunk:
    """Page-locked masters and gradients, and AdamW for them."""

    def __init__(self, pinned: bool) -> None:
        self.master = nn.Parameter(torch.randn(N).pin_memory() if pinned else torch.randn(N))
        self.gradient = torch.zeros(N).pin_memory() if pinned else torch.zeros(N)
        self.master.grad = self.gradient
        self.optimizer = torch.optim.AdamW([self.master], lr=1e-2, fused=True)
        self.out: torch.Event | None = None
        self.updated: torch.Event | None = None


def chunks(pinned: bool) -> list[Chunk]:
    torch.manual_seed(0)
    return [Chunk(pinned) for _ in range(CHUNKS)]


class Training:
    """Chunk by chunk there and back; updates by the launching thread after each step, or by the host's worker."""

    def __init__(self, sim: SimDevice, on_worker: bool, dropped: str | None) -> None:
        self.sim, self.on_worker, self.dropped = sim, on_worker, dropped
        self.chunks = chunks(pinned=True)
        self.into, self.out = torch.Stream(device="sim"), torch.Stream(device="sim")

    def wait(self, name: str, waiter: torch.Stream, waited: torch.Stream) -> None:
        if name != self.dropped:
            waiter.wait_stream(waited)

    def visit(self, chunk: Chunk) -> None:
        compute, master = torch.accelerator.current_stream(), chunk.master.detach()
        flat = torch.empty(N, device="sim")
        self.wait("memory to in", self.into, compute)
        if chunk.updated is not None and self.dropped != "optimizer to in":
            self.into.wait_event(chunk.updated)
        with self.into:
            flat.copy_(master, non_blocking=True)
        self.wait("in to use", compute, self.into)
        gradient = flat * 2
        self.wait("gradient to out", self.out, compute)
        with self.out:
            chunk.gradient.copy_(gradient, non_blocking=True)
            chunk.out = self.out.record_event()
        self.wait("out to release", compute, self.out)

    def update(self, chunk: Chunk) -> None:
        assert chunk.out is not None
        dropped = self.dropped == "gradient to optimizer"
        if self.on_worker:
            chunk.updated = self.sim.host_task(50_000, None if dropped else chunk.out, work=chunk.optimizer.step)
        else:
            if not dropped:
                chunk.out.synchronize()
            chunk.optimizer.step()

    def run(self) -> list[torch.Tensor]:
        with self.sim.checking_host():
            for _ in range(STEPS):
                for chunk in self.chunks:
                    self.visit(chunk)
                for chunk in self.chunks:
                    self.update(chunk)
            torch.accelerator.synchronize()
            for chunk in self.chunks:
                if chunk.updated is not None:
                    chunk.updated.synchronize()
            return [chunk.master.detach().clone() for chunk in self.chunks]


def on_cpu() -> list[torch.Tensor]:
    all_of_them = chunks(pinned=False)
    for chunk in all_of_them:
        for _ in range(STEPS):
            chunk.gradient.copy_(chunk.master.detach() * 2)
            chunk.optimizer.step()
    return [chunk.master.detach() for chunk in all_of_them]


@pytest.fixture
def recording(sim: SimDevice) -> SimDevice:
    sim.reset()
    return use_sim(ROUND, races="record")


@pytest.mark.parametrize("on_worker", [False, True])
def test_with_all_its_waits_it_is_clean_and_right(recording: SimDevice, on_worker: bool) -> None:
    for mine, cpus in zip(Training(recording, on_worker, None).run(), on_cpu(), strict=True):
        assert torch.equal(mine, cpus)
    assert [race.sentence for race in recording.races()] == []


DROPPED = {
    "memory to in": ("allocation", "copy to device"),
    "in to use": ("copy to device", "mul"),
    "gradient to out": ("mul", "copy to host"),
    "out to release": ("copy to host", "free"),
    "gradient to optimizer": ("copy to host", "_fused_adamw_"),
    "optimizer to in": ("_fused_adamw_", "copy to device"),
}


CASES = [(on_worker, dropped) for on_worker in (False, True) for dropped in DROPPED]
CASES.remove((False, "optimizer to in"))  # The thread that updates is the one that launches: there is no such wait.


@pytest.mark.parametrize(("on_worker", "dropped"), CASES)
def test_every_dropped_wait_is_named(recording: SimDevice, on_worker: bool, dropped: str) -> None:
    runs = []
    for _ in range(2):
        recording.reset()
        Training(recording, on_worker, dropped).run()
        runs.append([(race.first.op, race.second.op, race.block) for race in recording.races()])
    assert DROPPED[dropped] in [race[:2] for race in runs[0]]
    assert runs[0] == runs[1]
