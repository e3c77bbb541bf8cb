"""Blocks that work on a stream of their own, in the order that autograd and the program's waits give without a plan."""

import gc
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module

import pytest
import torch
from torch import nn

from experiments.hardware import read_hardware
from experiments.recompute.models import Trainee
from runtime.device import use_sim
from runtime.device.native import core
from tests.accelerators import prepared
from tests.runtime.recompute.test_joint import Anything
from tests.runtime.recompute.test_session import budget_of
from tests.runtime.recompute.training import QUICK, Outcome, trained

pytestmark = pytest.mark.usefixtures("quick")
__all__ = ["QUICK"]
WIDTH, ROWS, BLOCKS = 64, 512, 4


class Side(nn.Module):
    """Has a stream, of which a block's way through it is told by subclasses."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.stream: torch.Stream | None = None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        main = torch.accelerator.current_stream()
        if self.stream is None:
            self.stream = torch.Stream(device=hidden.device)
        inner = nn.functional.gelu(self.inward(hidden))
        self.stream.wait_stream(main)
        return self.beside(hidden, inner, main, self.stream)

    def beside(
        self, hidden: torch.Tensor, inner: torch.Tensor, main: torch.Stream, stream: torch.Stream
    ) -> torch.Tensor:
        """What the block makes of its input and what it has made so far; the stream has waited for both."""
        raise NotImplementedError


class Branch(Side):
    """One of two summands, of which autograd saves one, is made on the side."""

    def beside(
        self, hidden: torch.Tensor, inner: torch.Tensor, main: torch.Stream, stream: torch.Stream
    ) -> torch.Tensor:
        """A sum."""
        with stream:
            one = torch.tanh(hidden)
        other = self.outward(inner)
        main.wait_stream(stream)
        result: torch.Tensor = one + other
        return result


class WholeBranch(Side):
    """What a matrix product reads and makes crosses from stream to stream."""

    def beside(
        self, hidden: torch.Tensor, inner: torch.Tensor, main: torch.Stream, stream: torch.Stream
    ) -> torch.Tensor:
        """A sum."""
        with stream:
            other = self.outward(inner)
        main.wait_stream(stream)
        result: torch.Tensor = hidden + other
        return result


class Copied(Side):
    """An activation goes to the host meanwhile, and the block waits for that at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: torch.Tensor | None = None

    def beside(
        self, hidden: torch.Tensor, inner: torch.Tensor, main: torch.Stream, stream: torch.Stream
    ) -> torch.Tensor:
        """A sum."""
        with stream:
            self.seen = inner.detach().to("cpu", non_blocking=True)
        out: torch.Tensor = hidden + self.outward(inner)
        main.wait_stream(stream)
        return out


class CopiedLate(Copied):
    """Nobody waits for the copy: the allocator is told of it."""

    def beside(
        self, hidden: torch.Tensor, inner: torch.Tensor, main: torch.Stream, stream: torch.Stream
    ) -> torch.Tensor:
        """A sum."""
        with stream:
            self.seen = inner.detach().to("cpu", non_blocking=True)
        inner.detach().record_stream(stream)
        result: torch.Tensor = hidden + self.outward(inner)
        return result


KINDS: dict[str, Callable[[], Side]] = {
    "branch": Branch, "whole branch": WholeBranch, "copied": Copied, "copied late": CopiedLate,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[torch.device]:
    """With kernels so long that streams are apart."""
    gc.collect()
    if torch.cuda.is_available():
        pytest.skip("races are told on sim")
    yield use_sim(read_hardware("sim-tiny"), races="raise").device
    gc.collect()
    prepared("sim")


def trainee_of(name: str) -> Callable[[torch.device], Trainee]:
    """A model of such blocks only."""

    def make(device: torch.device) -> Trainee:
        blocks = [KINDS[name]() for _ in range(BLOCKS)]
        model = nn.Sequential(*blocks).to(device)
        rows = torch.randn(ROWS, WIDTH).to(device)
        return Trainee(model, tuple(blocks), lambda: model(rows).square().mean())

    return make


@cache
def plainly(name: str) -> Outcome:
    """Once for all plans."""
    return trained(torch.device("sim"), trainee_of(name))


@pytest.mark.parametrize("share", [0.85, 0.6])
@pytest.mark.parametrize("solver", ["heu", "opt", "joint"])
@pytest.mark.parametrize("name", list(KINDS))
def test_blocks_with_streams_of_their_own_train_alike(
    device: torch.device, name: str, solver: str, share: float
) -> None:
    budget = budget_of(plainly(name), share)
    kept = trained(device, trainee_of(name), budget=budget, solver=solver, around=True)
    torch.accelerator.synchronize()
    assert kept.equals(plainly(name))
    assert max(kept.peaks[1:]) <= budget


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", list(KINDS))
def test_any_valid_plan_of_theirs_trains_alike(
    device: torch.device, name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = Anything(seed)
    monkeypatch.setattr(import_module("runtime.recompute.decisions"), "build_solver", lambda *_: solver)
    budget = budget_of(plainly(name), 1.1)
    kept = trained(device, trainee_of(name), budget=budget, solver="joint", around=True)
    torch.accelerator.synchronize()
    assert kept.equals(plainly(name)) and kept.session is not None
    assert kept.session.report().swapped_out > 0


def test_what_sessions_send_waits_for_no_stream_that_a_plan_has_seen(device: torch.device) -> None:
    """They know who uses what; else all of a process was slower behind one plan of such blocks."""
    made: list[Trainee] = []

    def make(device: torch.device) -> Trainee:
        made.append(trainee_of("branch")(device))
        return made[0]

    trained(device, make, budget=budget_of(plainly("branch"), 0.85), around=True)
    (block, *_), rows = made[0].blocks, torch.ones(ROWS, WIDTH).to(device)
    assert isinstance(block, Side) and block.stream is not None
    torch.accelerator.synchronize()
    with block.stream:
        product = torch.ones(512, 512, device=device)
        for _ in range(8):
            product = product @ product
        busy = block.stream.record_event()
    core.swap_out(rows)
    core.copy_lanes(device)[1].record_event().synchronize()
    assert not busy.query()
    torch.accelerator.synchronize()
