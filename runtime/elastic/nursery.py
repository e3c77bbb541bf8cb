"""The process that workers are forked from, so that a fresh one is there at once: torch is imported once, ahead.

It forks on request, tells who ended, and ends with the supervisor: workers then have some seconds to end by themselves,
what is left is killed. Where they have saved their states, it makes a checkpoint of them, since nobody else is left who
could. Should it be killed itself, the system kills the workers (Linux).
"""

import ctypes
import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from runtime.elastic.checkpoint import finish, left_aside
from runtime.elastic.faults import in_words
from runtime.elastic.messages import CONFIG, Config

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that a process is sent when the one that started it ends."""
LOOK_S = 1.0
"""How often it looks whether the supervisor is still there."""


def end_with_parent(parent: int) -> None:
    """Lets the system kill this process when its parent ends, though that one be killed."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be asked for
        os._exit(1)


class Nursery:
    """Forks workers until stdin ends; `folder` takes what each says on stderr, as `said-NODE`.

    `terminal` is where the last word goes if the supervisor is killed.
    """

    def __init__(self, config: Config, folder: Path, terminal: int) -> None:
        self._config, self._folder, self._terminal, self._parent = config, folder, terminal, os.getppid()
        self._children: set[int] = set()
        self._losses: dict[int, float] = {}

    def run(self) -> None:
        """Writes `started NODE PID` and `ended PID STATUS` lines to stdout.

        Reads `start NODE`, `loss STEP LOSS`, and `bye` from stdin; if that ends without a bye, all are to save and end.
        """
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        print("ready", flush=True)
        rest = ""
        while True:
            ready, _, _ = select.select([0, woken], [], [], LOOK_S)
            if os.getppid() != self._parent:  # though somebody else still holds its end of stdin
                return self._end_alone()
            if woken in ready:
                os.read(woken, 4096)
                self._reap()
            if 0 in ready:
                asked = os.read(0, 4096).decode()
                if not asked:
                    return self._end_alone()
                *lines, rest = (rest + asked).split("\n")
                for line in lines:
                    what, *words = line.split()
                    if what == "start":
                        self._fork(int(words[0]))
                    elif what == "loss":
                        self._losses[int(words[0])] = float(words[1])
                    else:
                        return self._end()

    def _fork(self, node: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._children.add(pid)
            print(f"started {node} {pid}", flush=True)
            return
        code = 1
        try:
            self._become(node, parent)
            from runtime.elastic.worker import work

            code = work(self._config, node)
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _become(self, node: int, parent: int) -> None:
        """A process of its own: nothing of the nursery's signals and pipes is left."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        end_with_parent(parent)
        os.setsid()  # on a busy machine Linux shares cores between sessions: a worker is to have a share of its own
        nothing = os.open(os.devnull, os.O_RDWR)
        said = os.open(self._folder / f"said-{node}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for place, source in enumerate((nothing, nothing, said)):
            os.dup2(source, place)

    def _reap(self) -> None:
        """Ends are told in the order in which the system names them."""
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._children.discard(pid)
            print(f"ended {pid} {os.waitstatus_to_exitcode(status)}", flush=True)

    def _end(self) -> None:
        """The supervisor is done, or gone: workers notice that themselves; who does not in time is killed."""
        until = time.monotonic() + self._config.timeout_s
        while self._children and time.monotonic() < until:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            self._children.discard(pid)
            time.sleep(0 if pid else 0.02)
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)

    def _end_alone(self) -> None:
        """The supervisor is gone, or wants what has been saved: that becomes a checkpoint, and a sentence tells it."""
        self._end()
        sentence = self._finish()
        said = f"bayplan: the training was ended from outside, and all of its processes with it; {sentence}\n"
        with suppress(OSError):  # the terminal is gone, too
            os.write(self._terminal, said.encode())
        if os.getppid() != self._parent:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _finish(self) -> str:
        """Makes a checkpoint of the last parts, if they are all there; what came of it."""
        saving = self._config.saving
        if saving is None or not saving.on_exit:
            return "its state was not to be saved (save_on_exit)"
        why = ", since not all layers came to the same step"
        try:
            folders = list(left_aside(Path(saving.folder)))
        except OSError as error:
            folders, why = [], f" ({in_words(error)})"
        for folder in folders:
            try:
                if made := finish(folder, saving.origin, self._losses, saving.keep):
                    return f"its state after {made.manifest.step} steps is in {made.path}: resume goes on with it"
            except Exception as error:  # of a torn part, too: the last word is to be said whatever happens
                why = f" ({in_words(error)})"
        return f"its state could not be saved{why}: the checkpoint before stands"


def main(folder: Path, terminal: int) -> None:
    """Imports what workers need, and waits for requests."""
    config = CONFIG.decode((folder / "config.json").read_bytes())
    from runtime.elastic import worker  # what takes seconds is done here, once

    worker.preload(config)
    Nursery(config, folder, terminal).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
