"""The supervisor's side of its processes: the nursery, what it says, and that nothing is left behind."""

import os
import queue
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import NamedTuple

import msgspec
from torch._C._distributed_c10d import TCPStore

from runtime.elastic.keeper import Kept
from runtime.elastic.messages import EVENTS, UPWARD, Config, Sent
from runtime.elastic.store import FOREVER, connect, patiently

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

CLOSED = b"closed"


class Started(NamedTuple):
    """A node's process exists."""

    node: int
    pid: int


class Ended(NamedTuple):
    """A process has ended; a negative status is the signal that ended it."""

    pid: int
    status: int


Inbox = queue.SimpleQueue[Sent | Started | Ended | Kept]


class Children:
    """All processes of a training, gone when it leaves the context, however it does."""

    def __init__(self, config: Config, inbox: Inbox) -> None:
        self._folder = TemporaryDirectory(prefix="bayplan-elastic-")
        self.folder, self._inbox = Path(self._folder.name), inbox
        self._pids: set[int] = set()
        (self.folder / "config.json").write_bytes(msgspec.json.encode(config))
        self._said = (self.folder / "said-nursery").open("wb")
        terminal = os.dup(2)  # for the word that it says when this process has been killed
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "runtime.elastic.nursery", str(self.folder), str(terminal)], pass_fds=[terminal],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            env={**os.environ, "PYTHONPATH": paths, "TORCH_CPP_LOG_LEVEL": "ERROR", **dict.fromkeys(THREADS, "1")},
            start_new_session=True,  # Ctrl-C is the supervisor's to answer
        )  # fmt: skip
        os.close(terminal)
        Thread(target=self._listen, daemon=True).start()

    def start(self, node: int) -> None:
        """Asks for a process for a node."""
        self._say(f"start {node}")

    def counted(self, step: int, loss: float) -> None:
        """Lets the nursery know a loss: it finishes the last checkpoint where this process is killed."""
        self._say(f"loss {step} {loss!r}")

    def _say(self, line: str) -> None:
        assert self._nursery.stdin is not None
        with suppress(OSError, ValueError):  # it has ended, and `Ended` says so
            self._nursery.stdin.write(f"{line}\n".encode())
            self._nursery.stdin.flush()

    def resume(self, pid: int) -> None:
        """Lets a stopped process go on."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def said(self, node: int | str) -> str:
        """The last line that a node's process said on stderr."""
        try:
            lines = (self.folder / f"said-{node}").read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it said nothing"

    def _listen(self) -> None:
        assert self._nursery.stdout is not None
        for line in self._nursery.stdout:
            what, *numbers = line.decode().split()
            if what == "started":
                node, pid = map(int, numbers)
                self._pids.add(pid)
                self._inbox.put(Started(node, pid))
            elif what == "ended":
                pid, status = map(int, numbers)
                self._pids.discard(pid)
                self._inbox.put(Ended(pid, status))
        self._inbox.put(Ended(self._nursery.pid, self._nursery.wait()))

    @property
    def nursery_pid(self) -> int:
        """Its end is everybody's."""
        return self._nursery.pid

    def let_save(self, most_s: float) -> None:
        """Waits for the workers, which have been told to save, and for the nursery to make a checkpoint of it."""
        assert self._nursery.stdin is not None
        with suppress(OSError):
            self._nursery.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._nursery.wait(timeout=most_s)

    def close(self) -> None:
        """Kills what is left, and waits until it is gone."""
        if self._nursery.poll() is None:
            self._say("bye")
        for pid in list(self._pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._nursery.stdin is not None
        with suppress(OSError):
            self._nursery.stdin.close()
        try:
            self._nursery.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._nursery.kill()
            self._nursery.wait()
        self._said.close()
        self._folder.cleanup()


class Ear:
    """A thread that puts the workers' messages into the inbox, over a connection of its own, until it is closed."""

    def __init__(self, store: TCPStore, host: str, inbox: Inbox) -> None:
        self._store, self._inbox = store, inbox
        self._thread = Thread(
            target=self._take, args=(connect(host, store.port, FOREVER.total_seconds()),), daemon=True
        )
        self._thread.start()

    def _take(self, store: TCPStore) -> None:
        while (news := patiently(store.queue_pop, EVENTS)) != CLOSED:
            self._inbox.put(msgspec.structs.replace(UPWARD.decode(news), heard_ns=time.monotonic_ns()))

    def close(self) -> None:
        """Before the store goes: whoever waits for it then complains loudly."""
        self._store.queue_push(EVENTS, CLOSED.decode())
        self._thread.join(timeout=10)
