"""Runs an engine in a thread while the caller's thread watches: Ctrl-C and `watch` work alike on all engines."""

import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from solvers.ir.solution import Watch

HEARTBEAT_S = 0.2
"""How long `watch` waits at most for its next call when the engine has no news."""

PATIENCE_S = 5.0
"""How long an abandoned engine is waited for."""

INTERRUPTED = "stopped by Ctrl-C"

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Progress:
    """News of a running engine: the best objective and the best bound so far, None while unknown."""

    incumbent: float | None
    bound: float | None


Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Finished(Generic[ResultT]):
    """What came of a run; `stopped` is a sentence if the caller ended it."""

    result: ResultT
    stopped: str | None

    @property
    def interrupted(self) -> bool:
        """Whether it was Ctrl-C: the keystroke is used up, so the caller must be told."""
        return self.stopped == INTERRUPTED


@dataclass(frozen=True, slots=True)
class _Ended(Generic[ResultT]):
    result: ResultT | None
    error: BaseException | None


def follow(
    run: Callable[[Report], ResultT],
    stop: Callable[[], None],
    watch: Watch | None,
    abandon: Callable[[], None] | None = None,
) -> Finished[ResultT]:
    """Run an engine to its end, or until `watch` answers True or Ctrl-C is pressed; then its best solution is kept.

    `run` is called in a thread with a function that takes progress; `stop` must make it return soon, from any thread.
    `watch` is called here, in the caller's thread. A second Ctrl-C gives up (KeyboardInterrupt), and so does any other
    exception of `watch`: the engine is abandoned (by `stop` if no better way is given) and waited for a little, since
    memory must not be freed under it.
    """
    news: queue.SimpleQueue[Progress | _Ended[ResultT]] = queue.SimpleQueue()

    def work() -> None:
        try:
            news.put(_Ended(run(news.put), None))
        except BaseException as error:  # handed to the caller's thread
            news.put(_Ended(None, error))

    thread = threading.Thread(target=work, daemon=True, name="engine")
    thread.start()
    try:
        ended, stopped = _watched(news, stop, watch)
    except BaseException:
        (abandon or stop)()
        thread.join(PATIENCE_S)
        raise
    thread.join()
    return Finished(_result(ended), stopped)


def _watched(
    news: "queue.SimpleQueue[Progress | _Ended[ResultT]]", stop: Callable[[], None], watch: Watch | None
) -> tuple[_Ended[ResultT], str | None]:
    """Take news until the run ends; answers its end and why the caller ended it, if so."""
    best, stopped, started = Progress(None, None), None, time.monotonic()
    while True:
        try:
            item = _next(news)
            if isinstance(item, _Ended):
                return item, stopped
            best = _merged(best, item)
            if not news.empty():
                continue  # the latest news will do
            if watch is not None and stopped is None and watch(best.incumbent, best.bound, time.monotonic() - started):
                stopped = "stopped by the caller's watch"
                stop()
        except KeyboardInterrupt:
            if stopped == INTERRUPTED:
                raise
            stopped = INTERRUPTED
            stop()


def _next(news: "queue.SimpleQueue[Progress | _Ended[ResultT]]") -> Progress | _Ended[ResultT] | None:
    try:
        return news.get(timeout=HEARTBEAT_S)
    except queue.Empty:
        return None


def _result(ended: _Ended[ResultT]) -> ResultT:
    if ended.error is not None:
        raise ended.error
    return ended.result  # type: ignore[return-value]  # a run without an error has a result


def _merged(best: Progress, news: Progress | None) -> Progress:
    """Engines report a worse value at times (another thread, a restart); the best known stays known."""
    if news is None:
        return best
    return Progress(_pick(min, best.incumbent, news.incumbent), _pick(max, best.bound, news.bound))


def _pick(choose: Callable[[float, float], float], old: float | None, new: float | None) -> float | None:
    if new is None or not math.isfinite(new):
        return old
    return new if old is None else choose(old, new)
