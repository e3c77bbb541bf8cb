"""A worker's two other threads: one listens to the supervisor and ends waits, one lets its heart beat."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread, main_thread
from typing import NoReturn

from torch._C._distributed_c10d import TCPStore

from runtime.elastic.faults import SupervisorLost
from runtime.elastic.messages import Config, Late
from runtime.elastic.sockets import Sockets
from runtime.elastic.store import FOREVER, Line, connect, patiently

LEFT_ALONE = 3
"""Exit code of a worker whose supervisor has ended."""
ENDED = "the supervisor has ended, so this worker ends too"
SHARE = 0.8
"""Of `timeout_s`, which the nursery waits for workers to end: what they have to end a step and save their state."""
AGAIN_S = 0.01
"""How often sockets are shut down until the main thread has noticed."""
LATE_S = 1.0
"""Who has not noticed by then says where it waits."""


def beat_key(pid: int) -> str:
    """Where a process's heart beats: the machine's monotonic clock, in seconds."""
    return f"beat/{pid}"


def tell_key(pid: int) -> str:
    """The queue of what a process is told: `lost N` or `pause N`, N the generation; `save 0` before the end."""
    return f"tell/{pid}"


class Watch:
    """Begins both threads of a worker.

    `paused` is the last generation that is to meet anew after its step; `ending`: all are to save after their step.
    """

    def __init__(self, config: Config, sockets: Sockets, line: Line) -> None:
        self._config, self._sockets, self._line, self._pid = config, sockets, line, os.getpid()
        self.paused, self.ending = -1, False
        beats = connect(config.host, config.port, config.timeout_s)
        beats.set(beat_key(self._pid), str(time.monotonic()))  # before anybody looks for it
        listens = connect(config.host, config.port, FOREVER.total_seconds())
        Thread(target=self._beat, args=(beats,), daemon=True).start()
        Thread(target=self._listen, args=(listens,), daemon=True).start()

    def _beat(self, store: TCPStore) -> None:
        with suppress(RuntimeError, OSError):  # the listening thread says why
            while True:
                store.set(beat_key(self._pid), str(time.monotonic()))
                time.sleep(self._config.hang_s / 5)

    def _listen(self, store: TCPStore) -> None:
        try:
            while True:
                said = patiently(store.queue_pop, tell_key(self._pid)).decode().split()
                what, number = said[0], int(said[1])
                if what == "pause":
                    self.paused = max(self.paused, number)
                elif what == "lost":
                    self._end_waits(number)
                elif what == "save":
                    return self._end("")
        except (RuntimeError, OSError, SupervisorLost):
            self._end(ENDED)

    def _end(self, why: str) -> None:
        """This process ends: at once, or after the step that all others are in, whose result is to be saved."""
        saving = self._config.saving
        if saving is None or not saving.on_exit:
            _exit(why)
        self.ending = True
        until = time.monotonic() + SHARE * self._config.timeout_s
        while time.monotonic() < until:
            time.sleep(AGAIN_S)
            if self._line.reading:  # between generations there is no step that all could end
                _exit(f"{why or 'the training is ended'}; it was in no step, so nothing was saved")
        _exit(f"{why or 'the training is ended'}; the step was not over within {SHARE * self._config.timeout_s:g} s")

    def _end_waits(self, number: int) -> None:
        began, said = time.monotonic(), False
        while self._sockets.lose(number):
            time.sleep(AGAIN_S)
            if not said and time.monotonic() - began > LATE_S:
                said = True
                self._line.tell(Late(pid=self._pid, generation=number, where=where()))


def _exit(why: str) -> NoReturn:
    print(why, file=sys.stderr, flush=True)
    os._exit(LEFT_ALONE)


def where() -> str:
    """What the main thread does in here, innermost first: the file and line of each call."""
    found: list[str] = []
    frame = sys._current_frames().get(main_thread().ident or 0)
    while frame is not None and len(found) < 4:
        path = Path(frame.f_code.co_filename)
        if path.parent == Path(__file__).parent and path.name != Path(__file__).name:
            found.append(f"{frame.f_code.co_name} ({path.name}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(found)
