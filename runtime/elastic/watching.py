"""A worker's two other threads: one listens to the supervisor and ends waits, one lets its heart beat."""

import os
import sys
import time
from contextlib import suppress
from threading import Thread

from runtime.elastic.faults import SupervisorLost
from runtime.elastic.messages import Config
from runtime.elastic.sockets import Sockets
from runtime.elastic.store import FOREVER, connect

LEFT_ALONE = 3
"""Exit code of a worker whose supervisor has ended."""
AGAIN_S = 0.01
"""How often sockets are shut down until the main thread has noticed."""


def beat_key(pid: int) -> str:
    """Where a process's heart beats: the machine's monotonic clock, in seconds."""
    return f"beat/{pid}"


def tell_key(pid: int) -> str:
    """The queue of what a process is told: `lost N` or `pause N`, N the generation."""
    return f"tell/{pid}"


class Watch:
    """Begins both threads of a worker; `paused` is the last generation that is to meet anew after its step."""

    def __init__(self, config: Config, sockets: Sockets) -> None:
        self._config, self._sockets, self._pid = config, sockets, os.getpid()
        self.paused = -1
        beats = connect(config.host, config.port, config.timeout_s)
        beats.set(beat_key(self._pid), str(time.monotonic()))  # before anybody looks for it
        listens = connect(config.host, config.port, FOREVER.total_seconds())
        Thread(target=self._beat, args=(beats,), daemon=True).start()
        Thread(target=self._listen, args=(listens,), daemon=True).start()

    def _beat(self, store: object) -> None:
        with suppress(RuntimeError, OSError):  # the listening thread says why
            while True:
                store.set(beat_key(self._pid), str(time.monotonic()))  # type: ignore[attr-defined]
                time.sleep(self._config.hang_s / 5)

    def _listen(self, store: object) -> None:
        try:
            while True:
                said = store.queue_pop(tell_key(self._pid)).decode().split()  # type: ignore[attr-defined]
                what, number = said[0], int(said[1])
                if what == "pause":
                    self.paused = max(self.paused, number)
                elif what == "lost":
                    self._end_waits(number)
        except (RuntimeError, OSError, SupervisorLost):
            print("the supervisor has ended, so this worker ends too", file=sys.stderr, flush=True)
            os._exit(LEFT_ALONE)

    def _end_waits(self, number: int) -> None:
        while self._sockets.lose(number):
            time.sleep(AGAIN_S)
