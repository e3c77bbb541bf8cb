"""Of each device one session is active; the ones below it rest, and go on when it is gone."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from runtime.loop.nesting import activate, active, deactivate
from solvers.ir.errors import InvalidInput

FIRST, SECOND = torch.device("sim", 0), torch.device("sim", 1)


class Fake:
    """Notes what happens to it."""

    def __init__(self, name: str, log: list[str], broken: bool = False, device: torch.device = FIRST) -> None:
        self.name, self.log, self.broken, self.device = name, log, broken, device

    def _enter(self) -> None:
        if self.broken:
            raise ValueError(self.name)
        self.log.append(f"+{self.name}")

    def _leave(self) -> None:
        self.log.append(f"-{self.name}")


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def pair(log: list[str]) -> Iterator[tuple[Fake, Fake]]:
    outer, inner = Fake("outer", log), Fake("inner", log)
    yield outer, inner
    deactivate(inner)
    deactivate(outer)


def test_an_inner_session_suspends_the_outer_one(pair: tuple[Fake, Fake], log: list[str]) -> None:
    outer, inner = pair
    activate(outer)
    activate(inner)
    assert active(FIRST) is inner
    deactivate(inner)
    assert active(FIRST) is outer
    assert log == ["+outer", "-outer", "+inner", "-inner", "+outer"]


def test_the_outer_one_may_end_first(pair: tuple[Fake, Fake], log: list[str]) -> None:
    outer, inner = pair
    activate(outer)
    activate(inner)
    deactivate(outer)
    assert active(FIRST) is inner
    deactivate(inner)
    assert log == ["+outer", "-outer", "+inner", "-inner"]


def test_sessions_take_turns(pair: tuple[Fake, Fake], log: list[str]) -> None:
    first, second = pair
    activate(first)
    activate(second)
    activate(first)
    assert active(FIRST) is first
    activate(first)
    assert log == ["+outer", "-outer", "+inner", "-inner", "+outer"]


def test_one_that_cannot_start_leaves_the_other_active(pair: tuple[Fake, Fake], log: list[str]) -> None:
    outer, _ = pair
    activate(outer)
    with pytest.raises(ValueError, match="broken"):
        activate(Fake("broken", log, broken=True))
    assert active(FIRST) is outer
    assert log == ["+outer", "-outer", "+outer"]


def test_to_rest_twice_is_to_rest(pair: tuple[Fake, Fake], log: list[str]) -> None:
    outer, _ = pair
    deactivate(outer)
    activate(outer)
    deactivate(outer)
    deactivate(outer)
    assert log == ["+outer", "-outer"]


def test_sessions_of_two_devices_do_not_mind_each_other(pair: tuple[Fake, Fake], log: list[str]) -> None:
    """Whichever thread they follow."""
    outer, inner = pair
    beside = Fake("beside", log, device=SECOND)
    activate(outer)
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(activate, beside).result()
    activate(inner)
    assert (active(FIRST), active(SECOND)) == (inner, beside)
    deactivate(inner)
    deactivate(beside)
    assert (active(FIRST), active(SECOND)) == (outer, None)
    assert log == ["+outer", "+beside", "-outer", "+inner", "-inner", "+outer", "-beside"]


def test_one_thread_is_followed_at_a_time(pair: tuple[Fake, Fake], log: list[str]) -> None:
    """Else the outer one would go on following the thread on which the inner one ends."""
    outer, inner = pair
    activate(outer)
    with ThreadPoolExecutor(1) as elsewhere:
        with pytest.raises(InvalidInput, match=r"another thread is active on device sim:0"):
            elsewhere.submit(activate, inner).result()
        assert active(FIRST) is outer
        elsewhere.submit(deactivate, outer).result()
        elsewhere.submit(activate, inner).result()
    assert active(FIRST) is inner
    assert log == ["+outer", "-outer", "+inner"]
