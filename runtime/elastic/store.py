"""The store where all meet: the supervisor's, with a connection for each thread, since a waiting one blocks others."""

import time
from collections.abc import Callable
from datetime import timedelta
from threading import Lock

import msgspec
from torch._C._distributed_c10d import TCPStore
from torch.distributed import DistStoreError

from runtime.elastic.faults import SupervisorLost
from runtime.elastic.messages import EVENTS, Sent, Upward
from solvers.ir.errors import InvalidInput

FOREVER = timedelta(days=1)
"""After so long a wait asks again (`patiently`)."""


def open_store(host: str, port: int) -> TCPStore:
    """The supervisor's store; port 0 takes a free one. Raises `InvalidInput` where the port is taken."""
    try:
        return TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=FOREVER)
    except (RuntimeError, OSError) as error:
        raise InvalidInput(
            f"port {port} of {host} cannot be opened ({_first_line(error)}): choose another, or port=0 for a free one"
        ) from error


def connect(host: str, port: int, timeout_s: float) -> TCPStore:
    """A connection of one's own; what waits in it waits for `timeout_s` at most."""
    try:
        return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))
    except (RuntimeError, OSError) as error:
        raise SupervisorLost(f"no supervisor answers on {host}:{port} ({_first_line(error)})") from error


def patiently(ask: Callable[[str], bytes], key: str) -> bytes:
    """Asks a store (`get` or `queue_pop` of a connection) until there is an answer, whatever its connection's timeout.

    A connection can be used after a timeout. One that is broken raises `DistNetworkError`, a `RuntimeError`.
    """
    while True:
        try:
            return ask(key)
        except DistStoreError as error:
            if "timeout" not in str(error):
                raise


class Line:
    """A worker's connections to the supervisor: one to tell it things, for any thread, one for the main one to wait.

    `reading`: the main thread waits for the supervisor, or has heard that there is none.
    """

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._store, self._lock = connect(host, port, timeout_s), Lock()
        self.reading = False
        self._waiting = connect(host, port, FOREVER.total_seconds())

    def tell(self, message: Upward) -> None:
        """Puts a message into the supervisor's queue."""
        text = msgspec.json.encode(Sent(time.monotonic_ns(), message))
        try:
            with self._lock:
                self._store.queue_push(EVENTS, text.decode())
        except (RuntimeError, OSError) as error:
            raise SupervisorLost("the supervisor has ended: nothing was left to train for") from error

    def read(self, key: str) -> bytes:
        """Waits for a key's value, however long that takes."""
        self.reading = True
        try:
            found = patiently(self._waiting.get, key)
        except (RuntimeError, OSError) as error:
            raise SupervisorLost("the supervisor has ended: nothing was left to train for") from error
        self.reading = False
        return found


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
