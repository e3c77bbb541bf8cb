"""A session that begins or goes on with more in use than its budget comes down to it at once, and says so."""

import gc

import pytest
import torch
from torch import nn

from runtime.device import memory_stats, use_sim
from runtime.device.native import core
from runtime.swap.report import descent
from runtime.swap.session import Session, session

MIB = 1 << 20


class Loop:
    """A chain of layers on fresh random batches."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(48, 144), nn.GELU(), nn.Linear(144, 48)) for _ in range(6)]
        self.device = device
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)

    def step(self) -> torch.Tensor:
        loss: torch.Tensor = self.model(torch.randn(300, 48).to(self.device)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach().cpu()


NEED = 1_980_672
"""What one loop is given; it can do with a little less."""


def in_use(device: torch.device) -> int:
    return memory_stats(device).allocated_bytes


@pytest.fixture
def budget(device: torch.device) -> int:
    """Beside what other tests may have left on the device."""
    return in_use(device) + NEED


def remark_of(following: Session, begin: str) -> str:
    (found,) = [remark for remark in following.report().remarks if remark.startswith(begin)]
    return found


def eight(loop: Loop) -> list[torch.Tensor]:
    return [loop.step() for _ in range(8)]


def test_the_outer_session_comes_down_when_an_inner_one_closes(device: torch.device, budget: int) -> None:
    """The inner one brings all back that it had sent away, and it had more to use."""
    free = [loss for loop in (Loop(device), Loop(device)) for loss in eight(loop)]
    gc.collect()
    loop, other = Loop(device), Loop(device)
    with session(budget, device=device, optimizer=loop.optimizer) as outer:
        losses = eight(loop)
        with session(budget + NEED // 2, device=device, optimizer=other.optimizer):
            losses += eight(other)
        assert in_use(device) <= budget
        assert remark_of(outer, "the session went on with").endswith("were swapped out at once")
        assert outer.report().within_budget
        eight(loop)
        assert outer.report().within_budget
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(losses, free, strict=True))


def test_garbage_in_cycles_is_collected_and_not_sent_away(device: torch.device, budget: int) -> None:
    """An earlier run that nobody can reach any more does not make the session swap anything."""
    loop = Loop(device)
    unreachable: list[object] = [torch.zeros(2 * NEED, dtype=torch.uint8, device=device)]
    unreachable.append(unreachable)
    del unreachable
    assert in_use(device) > budget
    with session(budget, device=device, optimizer=loop.optimizer) as following:
        assert [remark for remark in following.report().remarks if "began with" in remark] == []
    assert in_use(device) <= budget


@pytest.mark.parametrize("times", [1, 3])
def test_a_session_that_goes_on_comes_down(device: torch.device, budget: int, times: int) -> None:
    loop = Loop(device)
    with session(budget, device=device) as following:
        loop.step()
        for _ in range(times):
            following.pause()
            ballast = torch.arange(budget // 8, device=device)
            assert in_use(device) > budget
            following.resume()
            assert in_use(device) <= budget
            assert core.is_out(ballast)
            loop.step()
        assert following.report().within_budget
        assert "above its budget of" in remark_of(following, "the session went on")
    assert torch.equal(ballast.cpu(), torch.arange(budget // 8))


def test_a_session_that_begins_above_its_budget_comes_down(device: torch.device, budget: int) -> None:
    loop = Loop(device)
    loop.step()
    ballast = [torch.full((MIB // 8,), float(number), device=device) for number in range(6)]
    before = in_use(device)
    with session(budget, device=device) as following:
        assert in_use(device) <= budget < before
        loop.step()
        report = following.report()
        assert report.within_budget
        assert f"{before - budget} bytes" in remark_of(following, "the session began with")
        assert report.counts.passive > 0
    assert [float(each.mean()) for each in ballast] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_what_cannot_leave_is_said_with_its_size(device: torch.device, budget: int) -> None:
    """A tensor on memory that somebody else knows stays for its life."""
    loop = Loop(device)
    loop.step()
    known = torch.zeros(NEED // 4 + 1024, device=device)
    core.hold_storage(known.untyped_storage()._cdata, True)
    with session(budget, device=device) as following:
        report = following.report()
        assert not report.within_budget
        sentence = remark_of(following, "the session began with")
        assert "no swapping can move now: free some of them, or raise the budget" in sentence
        with pytest.raises(torch.OutOfMemoryError):
            loop.step()
    del known
    assert loop.step().isfinite()


def test_nothing_is_said_of_a_session_within_its_budget(device: torch.device, budget: int) -> None:
    loop = Loop(device)
    with session(budget, device=device) as following:
        loop.step()
        following.pause()
        following.resume()
        assert following.report().remarks == ()


def test_streams_are_done_with_what_leaves_at_the_begin(device: torch.device) -> None:
    """A batch is on its way on a side stream, which nobody has waited for: races are raised."""
    before, side = in_use(device), torch.Stream(device)
    pinned = torch.arange(MIB // 8, dtype=torch.float32).pin_memory()
    with side:
        batch = pinned.to(device, non_blocking=True)
        more = batch * 2
    with session(before + MIB // 2 + 512, device=device):
        assert core.is_out(batch) or core.is_out(more)
        assert torch.equal(more.cpu(), 2 * pinned)
    assert torch.equal(batch.cpu(), pinned)


def test_the_host_may_be_short_too(device: torch.device, budget: int) -> None:
    loop = Loop(device)
    loop.step()
    ballast = torch.ones(NEED // 4, device=device)
    with session(budget, device=device, host_limit_bytes=4096) as following:
        assert not following.report().within_budget
        assert "nothing of it could leave" in remark_of(following, "the session began with")
        following.pause()
        del ballast
        following.resume()
        assert "host_limit_bytes" not in str(following.report().remarks[:1])


def test_the_sentence_has_the_figures() -> None:
    assert descent(1000, 5000, 900, 3, again=False) == (
        "the session began with 5000 bytes (4.88 KiB) in use, 4000 bytes (3.91 KiB) above its budget of 1000 bytes: "
        "3 storages of 4100 bytes (4.00 KiB) were swapped out at once"
    )
    stuck = descent(1000, 5000, 4000, 0, again=True)
    assert stuck.startswith("the session went on with") and "nothing of it could leave" in stuck


def test_what_does_not_come_back_at_the_end_is_said(plain_sim: None, caplog: pytest.LogCaptureFixture) -> None:
    """A device as large as the budget keeps less than the program has made; all of it is there for who makes room."""
    device = use_sim(capacity_bytes=MIB).device
    with session(MIB, device=device) as following:
        made = [torch.full((MIB // 16,), float(number), device=device) for number in range(6)]
        assert following.report().left_out_bytes == 0
        following.pause()
        assert following.report().left_out_bytes == 2 * MIB // 4
        following.resume()
        assert following.report().left_out_bytes == 0
    report = following.report()
    assert report.left_out_bytes == 2 * MIB // 4 == sum(each.nbytes for each in made if core.is_out(each))
    (sentence,) = [remark for remark in report.remarks if "had no room for" in remark]
    assert sentence in str(report) and sentence in caplog.text
    assert "524288 bytes (512.00 KiB) (2 storages)" in sentence and "keep the session open" in sentence
    for number in reversed(range(6)):
        assert float(made.pop().cpu().mean()) == number


def test_nothing_is_said_of_a_session_that_brought_everything_back(device: torch.device, budget: int) -> None:
    ballast = torch.ones(NEED // 4, device=device)
    with session(budget - NEED // 2, device=device) as following:
        assert core.is_out(ballast)
    assert following.report().left_out_bytes == 0 and "no room" not in str(following.report())
