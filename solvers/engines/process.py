"""Child processes that hold HiGHS: started when first needed, kept for the next solve, replaced when they die."""

import atexit
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from solvers.ir.errors import EngineMissing

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SCRIPT = Path(__file__).with_name("highs_worker.py")
START_S = 60.0
"""Seconds that a child process may take to import its libraries, on a busy machine too."""

PING_S = 5.0
"""Seconds that an idle child process may take to answer before it is replaced."""


class ProcessDied(Exception):
    """The child ended while it was needed; the text says how."""


class HighsProcess:
    """One child and the socket to it. Its owner is one thread at a time, except for `stop`."""

    def __init__(self) -> None:
        from multiprocessing import Pipe  # ten milliseconds that only HiGHS's users pay

        ours, theirs = Pipe(duplex=True)
        self._connection: Connection[Any, Any] = ours
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(SCRIPT), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                process_group=0,  # Ctrl-C of the terminal is for us alone
            )
        self._sending = threading.Lock()
        self.version = self._greeting()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the child still runs."""
        return self._process.poll() is None

    def responds(self) -> bool:
        """Whether the child answers; one that was killed a moment ago still counts as alive for the kernel."""
        try:
            self.send("ping")
            while (message := self.receive(PING_S)) is not None:
                if message[0] == "pong":
                    return True
        except ProcessDied:
            pass
        return False

    def send(self, *message: Any) -> None:
        """Send one message; raises ProcessDied."""
        try:
            with self._sending:
                self._connection.send(message)
        except (OSError, ValueError) as error:
            raise ProcessDied(self._epitaph()) from error

    def receive(self, timeout_s: float | None) -> tuple[Any, ...] | None:
        """The next message, None after the timeout; raises ProcessDied."""
        try:
            if not self._connection.poll(timeout_s):
                return None
            message: tuple[Any, ...] = self._connection.recv()
            return message
        except (EOFError, OSError) as error:
            raise ProcessDied(self._epitaph()) from error

    def terminate(self) -> None:
        """End the child process at once; its listener is told. Callable from any thread."""
        self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        """End the child process and collect it, so that no zombie stays; its listener must have stopped."""
        self.terminate()
        self._connection.close()
        self._errors.close()

    def _greeting(self) -> str:
        try:
            message = self.receive(START_S)
        except ProcessDied as error:
            self.kill()
            raise EngineMissing(
                f"engine highs did not start: {error}; reinstall highspy or choose another engine"
            ) from error
        if message is not None and message[0] == "ready":
            return str(message[1])
        self.kill()
        why = f"is silent for {START_S:.0f} s" if message is None else f"cannot import highspy ({message[1]})"
        raise EngineMissing(f"engine highs {why}: reinstall highspy or choose another engine")

    def _epitaph(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "HiGHS's process closed its socket"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        tail = f" ({lines[-1].strip()})" if lines else ""
        how = f"was killed by signal {-code} (9 usually means out of memory)" if code < 0 else f"ended with code {code}"
        return f"HiGHS's process {how}{tail}"


class HighsPool:
    """Lends a child to each solve and keeps one idle for the next; a solve inside a `watch` gets another one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[HighsProcess] = []
        self._owner = os.getpid()

    def borrow(self) -> HighsProcess:
        """A living child, fresh if none is idle; raises EngineMissing."""
        with self._lock:
            self._forget_if_forked()
            while self._idle:
                process = self._idle.pop()
                if process.responds():
                    return process
                process.kill()
        return HighsProcess()

    def give_back(self, process: HighsProcess) -> None:
        """Keep the child for the next solve, or end it if one is kept already."""
        with self._lock:
            if process.alive() and not self._idle:
                self._idle.append(process)
                return
        process.kill()

    def close(self) -> None:
        """End the idle children; the next solve starts a new one."""
        with self._lock:
            self._forget_if_forked()
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()

    def _forget_if_forked(self) -> None:
        """A forked copy of this program must not talk to its parent's child."""
        if self._owner != os.getpid():
            self._owner, self._idle = os.getpid(), []


POOL = HighsPool()
atexit.register(POOL.close)
