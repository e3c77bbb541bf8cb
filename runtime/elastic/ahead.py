"""One thread that has plans made ahead, for the newest layout only, until it is closed."""

from threading import Condition, Thread

from runtime.elastic.events import LOGGER
from runtime.elastic.faults import in_words
from runtime.elastic.plans import Layout, Planning

LOSSES = 1
"""Plans are made for so many failures at once."""
LAST_S = 2.0
"""So long a search that was told to stop is waited for at the end."""


class Ahead:
    """Fills a training's caches of plans beside it; what a newer layout overtakes is left off."""

    def __init__(self, planning: Planning) -> None:
        self._planning = planning
        self._change = Condition()
        self._wanted: tuple[Layout, int] | None = None
        self._closed = False
        self._thread: Thread | None = None

    def want(self, layout: Layout, nodes: int) -> None:
        """Has plans made for what may happen next to a layout on so many nodes."""
        with self._change:
            self._wanted = layout, nodes
            self._change.notify()
        if self._thread is None:
            self._thread = Thread(target=self._fill, name="plans ahead", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the search that is under way, and the thread; one that does not listen ends with the process."""
        with self._change:
            self._closed = True
            self._change.notify()
        if self._thread is not None:
            self._thread.join(timeout=LAST_S)

    def _fill(self) -> None:
        while (wanted := self._next()) is not None:
            try:
                self._planning.fill(*wanted, LOSSES, self._overtaken)
            except Exception as error:  # at a failure the same is tried again, where it is heard
                LOGGER.warning(f"plans could not be made ahead ({in_words(error)}): each is made when it is needed")

    def _next(self) -> tuple[Layout, int] | None:
        with self._change:
            self._change.wait_for(lambda: self._closed or self._wanted is not None)
            wanted, self._wanted = self._wanted, None
            return None if self._closed else wanted

    def _overtaken(self, incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        """A solver's watcher: whether to stop."""
        return self._closed or self._wanted is not None
