"""Ctrl-C as a wish to stop, not as an accident: the first one asks, the second one ends."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


_ENTERED: list["Interrupts"] = []


def end_where_asked() -> None:
    """Raise KeyboardInterrupt where one was raised already, and caught: solvers then answer with their best plan."""
    if any(one.asked_by is not None and not one.patient for one in _ENTERED):
        raise KeyboardInterrupt


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
