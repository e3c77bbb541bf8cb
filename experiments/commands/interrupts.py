"""Ctrl-C as a wish to stop, not as an accident: the first one asks, the second one ends."""

import signal
import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, TypeVar

INTERRUPTED = 130
"""Exit code of what Ctrl-C ended, as a shell has it: 128 and the number of SIGINT."""
SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


PartT = TypeVar("PartT")

_ENTERED: list["Interrupts"] = []


def end_where_asked() -> None:
    """Raise KeyboardInterrupt where one was raised already, and caught: solvers then answer with their best plan."""
    if _asked():
        raise KeyboardInterrupt


def until_asked(parts: Iterable[Callable[[], PartT]]) -> tuple[PartT, ...]:
    """What these parts of a command's work answer, one after the other; where Ctrl-C came, those done before.

    The part that it cut short is left out: a solver that was stopped answers with its best until then, which is not
    what the same command says otherwise. Where no `Interrupts` is entered KeyboardInterrupt is raised as ever.
    """
    done: list[PartT] = []
    try:
        for part in parts:
            end_where_asked()
            found = part()
            end_where_asked()
            done.append(found)
    except KeyboardInterrupt:
        if not _asked():
            raise
    return tuple(done)


def _asked() -> bool:
    return any(one.asked_by is not None and not one.patient for one in _ENTERED)


class Interrupts:
    """While it is entered, the first Ctrl-C (or SIGTERM) sets `asked_by`; a second one raises KeyboardInterrupt.

    With `patient=False` the first one raises as well: `asked_by` then tells who caught it on the way, and
    `end_where_asked` raises again between two parts of the work.
    """

    def __init__(self, patient: bool = True) -> None:
        self.patient = patient
        self.asked_by: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        _ENTERED.append(self)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        _ENTERED.remove(self)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again = self.asked_by is not None
        self.asked_by = self.asked_by or SIGNALS[signal.Signals(number)]
        if again or not self.patient:
            raise KeyboardInterrupt


def told_interrupted(interrupts: Interrupts, so_far: str) -> int:
    """Say on stderr that a command was interrupted, and what there is all the same; its exit code."""
    print(f"bayplan: interrupted by {interrupts.asked_by}: {so_far}", file=sys.stderr)
    return INTERRUPTED
