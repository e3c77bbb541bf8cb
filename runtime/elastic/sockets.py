"""The sockets of a generation, so that another thread can end whatever waits on them (Linux).

A process that waits for a live peer does not notice that a third one is gone, and neither abort nor shutdown of gloo's
groups wakes it. Shutting the sockets down does: both ends see an error at once.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path
from threading import Lock

from runtime.elastic.faults import PeerLost

OPEN = Path("/proc/self/fd")


class Sockets:
    """Those that a generation opens, between `begin` and `settle`; nothing else may open any in between."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._number: int | None = None
        self._lost = -1
        self._before: frozenset[tuple[int, str]] = frozenset()
        self._opened: frozenset[tuple[int, str]] | None = None

    def begin(self, number: int) -> None:
        """Sockets opened from now on are this generation's; raises `PeerLost` where that has ended already."""
        with self._lock:
            if number <= self._lost:
                raise PeerLost(f"generation {number} has ended before it began")
            self._number, self._before, self._opened = number, _open_sockets(), None

    def settle(self) -> None:
        """No more will be opened."""
        with self._lock:
            self._opened = _open_sockets() - self._before

    def end(self) -> None:
        """They are about to be closed: their numbers may soon be others'."""
        with self._lock:
            self._number = None

    def lose(self, number: int) -> bool:
        """Shuts down what the generation has; whether it may still be waiting, so that this is to be repeated."""
        with self._lock:
            self._lost = max(self._lost, number)
            if self._number is None or self._number > number:
                return False
        self.cut()
        return True

    def is_lost(self, number: int) -> bool:
        """Whether the supervisor has said that the generation has ended."""
        return number <= self._lost

    def cut(self) -> None:
        """Ends all connections of the generation at hand, whoever waits for them."""
        with self._lock:
            if self._number is None:
                return
            there = _open_sockets()
            for one in there - self._before if self._opened is None else there & self._opened:
                _shut(one[0])


def _open_sockets() -> frozenset[tuple[int, str]]:
    """By descriptor and inode: descriptors that are closed late are soon another socket's."""
    found = []
    for name in os.listdir(OPEN):
        with suppress(OSError):  # closed meanwhile
            target = os.readlink(OPEN / name)
            if target.startswith("socket:"):
                found.append((int(name), target))
    return frozenset(found)


def _shut(descriptor: int) -> None:
    """Ends a connection over the internet protocols; anything else is left alone."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
        if same.family in (socket.AF_INET, socket.AF_INET6):
            same.getpeername()  # not a listening one
            same.shutdown(socket.SHUT_RDWR)
