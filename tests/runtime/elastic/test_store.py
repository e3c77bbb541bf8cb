"""Waiting at a store for longer than its connection's timeout."""

import subprocess
import sys
from collections.abc import Callable
from threading import Timer

import pytest
from torch._C._distributed_c10d import TCPStore

from runtime.elastic.faults import SupervisorLost
from runtime.elastic.store import Line, connect, open_store, patiently
from runtime.elastic.watching import tell_key

HOST = "127.0.0.1"


def push(store: TCPStore) -> None:
    store.queue_push(tell_key(1), "lost 7")


def put(store: TCPStore) -> None:
    store.set(tell_key(1), "lost 7")


@pytest.mark.parametrize(("gives", "asks"), [(push, TCPStore.queue_pop), (put, TCPStore.get)])
def test_what_comes_after_a_timeout_is_heard(
    gives: Callable[[TCPStore], None], asks: Callable[[TCPStore, str], bytes]
) -> None:
    """A connection of 1 s, and an answer after 1.5 s; without patience that ends a worker."""
    store = open_store(HOST, 0)
    waiting = connect(HOST, store.port, 1.0)
    with pytest.raises(RuntimeError, match="timeout"):
        asks(waiting, tell_key(1))
    later = Timer(1.5, gives, (store,))
    later.start()
    try:
        assert patiently(lambda key: asks(waiting, key), tell_key(1)) == b"lost 7"
    finally:
        later.join()


def test_who_waits_for_a_supervisor_that_has_ended_does_not_wait_for_ever() -> None:
    served = (
        "from runtime.elastic.store import open_store; import sys; store = open_store('127.0.0.1', 0);"
        "print(store.port, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", served], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        line = Line(HOST, int(other.stdout.readline()), 60.0)
        later = Timer(0.5, other.kill)
        later.start()
        with pytest.raises(SupervisorLost, match="the supervisor has ended"):
            line.read("never")
        later.join()
