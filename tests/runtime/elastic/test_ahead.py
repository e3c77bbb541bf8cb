"""Plans made ahead: one thread, the newest layout only, and nothing left running."""

import threading
from threading import Event
from typing import cast

import pytest

from runtime.elastic.ahead import Ahead
from runtime.elastic.measure import Link
from runtime.elastic.plans import Layout, Planning
from solvers.ir.solution import Watch
from tests.runtime.elastic.jobs import costs

PATIENT = 60.0


class Slow:
    """Planning that goes on until its watcher ends it."""

    def __init__(self, refuse: int = -1) -> None:
        self.begun, self.go, self.refuse = list[int](), Event(), refuse

    def fill(self, layout: Layout, nodes: int, losses: int, watch: Watch) -> int:
        self.begun.append(nodes)
        self.go.set()
        if nodes == self.refuse:
            raise ValueError("no plan")
        while not watch(None, None, 0.0):
            pass
        return 0


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "plans ahead"]


def test_a_newer_layout_overtakes_and_closing_ends_the_thread() -> None:
    slow = Slow()
    ahead = Ahead(cast("Planning", slow))
    assert threads() == []
    for nodes in (8, 7, 6):
        slow.go.clear()
        ahead.want(Layout(()), nodes)
        assert slow.go.wait(PATIENT)
        assert len(threads()) == 1
    assert slow.begun == [8, 7, 6]
    ahead.close()
    assert threads() == []


def test_a_fault_is_told_and_the_next_layout_is_planned(caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow(refuse=8)
    ahead = Ahead(cast("Planning", slow))
    ahead.want(Layout(()), 8)
    assert slow.go.wait(PATIENT)
    slow.go.clear()
    ahead.want(Layout(()), 7)
    assert slow.go.wait(PATIENT)
    ahead.close()
    assert slow.begun == [8, 7]
    assert "plans could not be made ahead (ValueError: no plan): each is made when it is needed" in caplog.text


def test_a_watcher_ends_real_planning() -> None:
    """Nothing is solved for a watcher that wants nothing, and all of it without one."""
    planning = Planning(costs(6), "exact-replan", Link())
    layout = planning.start(range(6), 2).layout
    smaller = planning.decide(layout, range(5)).layout
    assert planning.fill(smaller, 5, 1, lambda *_: True) == 0
    assert planning.fill(smaller, 5, 1) > 0
    assert planning.fill(smaller, 5, 1) == 0
    Ahead(planning).close()  # before anything was wanted
