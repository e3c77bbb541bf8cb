"""What a running solver shows on a terminal: incumbent, bound, gap, elapsed time, from the second second on."""

import sys
import threading
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from experiments.commands.interrupts import Interrupts
from experiments.commands.show import show_share, show_us
from experiments.printable import printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

PATIENCE_S = 2.0
"""Shorter solves show nothing."""


class Progress(AbstractContextManager["Progress"]):
    """A watch for solvers: it remembers the news, draws them on stderr's terminal, and stops the solver on Ctrl-C."""

    def __init__(self, title: str, interrupts: Interrupts) -> None:
        self.title, self.interrupts = title, interrupts
        self.incumbent: float | None = None
        self.bound: float | None = None
        self.began = time.monotonic()
        self._live: Live | None = None
        self._timer = threading.Timer(PATIENCE_S, self._draw)
        self._timer.daemon = True
        self._ended = threading.Event()

    def __enter__(self) -> "Progress":
        self.began = time.monotonic()
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended.set()
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()  # it may just be starting to draw
        if self._live is not None:
            self._live.stop()

    def __call__(self, incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        """News from the solver; True asks it to stop and keep its best plan."""
        self.incumbent = self.incumbent if incumbent is None else incumbent
        self.bound = self.bound if bound is None else bound
        return self.interrupts.asked_by is not None

    def line(self) -> str:
        """The news in one line."""
        gap = None
        if self.incumbent is not None and self.bound is not None:
            gap = (self.incumbent - self.bound) / self.incumbent if self.incumbent else 0.0
        stopping = f"; stopping on {self.interrupts.asked_by}, once more ends it" if self.interrupts.asked_by else ""
        return (
            f"{self.title}: incumbent {show_us(self.incumbent)}, bound {show_us(self.bound)}, gap {show_share(gap)}, "
            f"{time.monotonic() - self.began:.0f} s{stopping}"
        )

    def _draw(self) -> None:
        from rich.console import Console
        from rich.live import Live

        if not self._ended.is_set():
            self._live = Live(
                console=Console(stderr=True), get_renderable=self._text, transient=True, refresh_per_second=4
            )
            self._live.start()

    def _text(self) -> "Text":
        from rich.text import Text

        return Text(printable(self.line()))
