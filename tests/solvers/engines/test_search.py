"""Watching a run from outside: news, stops, Ctrl-C and errors, with a stand-in for the engine."""

import threading
import time

import pytest

from solvers.engines.search import INTERRUPTED, Progress, Report, follow


class Engine:
    """Finds 10, 9, 8, …, one each hundredth of a second, until it is stopped."""

    def __init__(self, steps: int = 1000) -> None:
        self.stopped = threading.Event()
        self.steps = steps

    def __call__(self, report: Report) -> int:
        value = 10
        for _ in range(self.steps):
            report(Progress(value, None))
            if self.stopped.wait(0.01):
                break
            value -= 1
        return value

    def stop(self) -> None:
        self.stopped.set()


def test_a_run_that_ends_by_itself() -> None:
    engine = Engine(steps=3)
    finished = follow(engine, engine.stop, None)
    assert (finished.result, finished.stopped) == (7, None)


def test_watch_sees_news_and_its_true_stops() -> None:
    engine, seen = Engine(), []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append((incumbent, bound, elapsed_s))
        return incumbent is not None and incumbent <= 5

    finished = follow(engine, engine.stop, watch)
    assert finished.stopped == "stopped by the caller's watch"
    assert finished.result <= 5
    incumbents = [incumbent for incumbent, _, _ in seen]
    assert incumbents == sorted((i for i in incumbents if i is not None), reverse=True)
    assert [elapsed for _, _, elapsed in seen] == sorted(elapsed for _, _, elapsed in seen)


def test_watch_is_called_without_news_too() -> None:
    stop = threading.Event()
    calls = []

    def watch(incumbent: float | None, _bound: float | None, _elapsed_s: float) -> bool:
        calls.append(incumbent)
        return len(calls) == 2

    follow(lambda _: stop.wait(30), stop.set, watch)
    assert calls == [None, None]


def test_the_best_news_stay_best() -> None:
    done, seen = threading.Event(), []

    def run(report: Report) -> None:
        for value in (Progress(5, 1), Progress(7, 2), Progress(float("inf"), None), Progress(None, 1.5)):
            report(value)
            time.sleep(0.05)
        done.wait(30)

    def watch(incumbent: float | None, bound: float | None, _elapsed_s: float) -> bool:
        seen.append((incumbent, bound))
        return len(seen) >= 4

    follow(run, done.set, watch)
    assert seen[-1] == (5, 2)


def test_ctrl_c_keeps_the_result() -> None:
    engine, calls = Engine(), []

    def watch(*_: object) -> bool:
        calls.append(1)
        raise KeyboardInterrupt

    finished = follow(engine, engine.stop, watch)
    assert finished.stopped == INTERRUPTED
    assert finished.interrupted
    assert calls == [1]
    assert finished.result <= 10


def test_a_second_ctrl_c_gives_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine does not listen; the second KeyboardInterrupt comes while we wait for it."""
    stop = threading.Event()
    presses = []

    def pressed(*_: object) -> None:
        presses.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr("solvers.engines.search._next", pressed)
    monkeypatch.setattr("solvers.engines.search.PATIENCE_S", 0.1)
    with pytest.raises(KeyboardInterrupt):
        follow(lambda _: stop.wait(30), lambda: None, None)
    assert len(presses) == 2
    stop.set()


def test_errors_of_engine_and_watch_reach_the_caller() -> None:
    def broken(_: Report) -> None:
        raise ArithmeticError("engine")

    with pytest.raises(ArithmeticError, match="engine"):
        follow(broken, lambda: None, None)

    engine = Engine()

    def watch(*_: object) -> bool:
        raise LookupError("watch")

    with pytest.raises(LookupError, match="watch"):
        follow(engine, engine.stop, watch)
    assert engine.stopped.is_set()
