"""A generation that is being formed can be left at any moment, also where a group waits for a peer to connect."""

from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread

import pytest
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import TCPStore

from runtime.elastic.faults import PeerLost
from runtime.elastic.groups import Groups
from runtime.elastic.sockets import Sockets
from runtime.elastic.store import connect, open_store
from runtime.elastic.watching import where

HOST, PATIENT = "127.0.0.1", 60.0
CONNECTS_S = 1.0
"""Who is to connect has mostly done so after that."""
SHORT_S = 3.0
"""What gloo's own waits may take here: threads that are left behind end soon after the test."""


@pytest.fixture
def store() -> TCPStore:
    return open_store(HOST, 0)


class Meeting:
    """Node 0 of a generation opens its groups, as a worker does; what comes of it."""

    def __init__(self, store: TCPStore, number: int = 1, timeout_s: float = PATIENT) -> None:
        self.sockets = Sockets()
        self.groups = Groups(HOST, store.port, timeout_s, self.sockets)
        self.said: SimpleQueue[str] = SimpleQueue()
        Thread(target=self._open, args=(number,), daemon=True).start()

    def _open(self, number: int) -> None:
        try:
            self.groups.open(number, 0, (0, 1), {})
            said = "met"
        except PeerLost as error:
            said = str(error)
        self.groups.close(broken=True)
        self.said.put(said)


def published(store: TCPStore, key: str) -> bytes:
    """A key's value, once it is there."""
    found: bytes = connect(HOST, store.port, PATIENT).get(key)
    return found


def silent_peer(store: TCPStore, name: str) -> None:
    """Makes a real peer's address known as `name`, which then does not connect, as if killed right there."""
    options = c10d.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [c10d.ProcessGroupGloo.create_device(hostname=HOST)]

    def wait() -> None:
        with suppress(RuntimeError):  # nobody comes, and the store may be gone by then
            mine = c10d.PrefixStore(f"not {name}", connect(HOST, store.port, SHORT_S))
            c10d.ProcessGroupGloo(mine, 1, 2, options)

    Thread(target=wait, daemon=True).start()
    address = published(store, f"not {name}/0/1")
    connect(HOST, store.port, PATIENT).set(f"{name}/0/1", address)  # type: ignore[arg-type]  # bytes, which its stub lacks


def test_a_peer_that_ends_between_its_address_and_its_connection(store: TCPStore) -> None:
    """One of two connects, the other one waits for that, and has no socket which could be shut down.

    Which one is which depends on their ports: it is tried until this one has been both. Who connects has met at once;
    that it was seen says that who had not met in the same time did wait.
    """
    seen: set[str] = set()
    for number in range(1, 60):
        meeting = Meeting(store, number)
        silent_peer(store, f"generation {number}: (0, 1)")
        try:
            said = meeting.said.get(timeout=CONNECTS_S)
        except Empty:
            meeting.sockets.lose(number)
            said = meeting.said.get(timeout=PATIENT / 2)
            assert said == f"generation {number} has ended while it was formed"
        assert not meeting.sockets.lose(number)  # it has left
        seen.add("met" if said == "met" else "waited")
        if len(seen) == 2:
            return
    raise AssertionError(f"in 59 generations it only ever {seen}")


def test_a_peer_that_never_comes(store: TCPStore) -> None:
    meeting = Meeting(store)
    published(store, "generation 1: (0, 1)/0/0")
    meeting.sockets.lose(1)
    assert meeting.said.get(timeout=PATIENT / 2)


def test_the_wait_is_bounded_though_nobody_tells(store: TCPStore) -> None:
    meeting = Meeting(store, timeout_s=0.3)
    said = meeting.said.get(timeout=PATIENT / 2)
    assert said == "not all members came within 0.3 s" or "timeout" in said


def test_where_names_the_calls_of_the_main_thread(store: TCPStore) -> None:
    class Asking(Sockets):
        def is_lost(self, number: int) -> bool:
            found.append(where())
            return True

    found: list[str] = []
    with pytest.raises(PeerLost, match="generation 3 has ended while it was formed"):
        Groups(HOST, store.port, PATIENT, Asking())._met(3, SimpleQueue())
    assert found[0].startswith("_met (groups.py:")


def test_a_generation_is_formed_over_a_connection_that_was_there_before(store: TCPStore) -> None:
    """Two nodes meet twice, and neither of them connects to the store again."""
    both = [Groups(HOST, store.port, PATIENT, Sockets()) for _ in range(2)]
    ahead = [groups._spare[0] for groups in both]
    for number in (1, 2):
        threads = [
            Thread(target=groups.open, args=(number, node, (0, 1), {0: (0, 1)})) for node, groups in enumerate(both)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENT)
        assert [groups._spare for groups in both] == [[one] for one in ahead]
        for groups in both:
            groups.close(broken=False)


@pytest.mark.parametrize("meanwhile", [1, 2])
def test_a_connection_ahead_that_comes_in_a_later_generation_is_dropped(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch, meanwhile: int
) -> None:
    """Its socket may count as that generation's, and would be cut with it."""
    groups = Groups(HOST, store.port, PATIENT, Sockets())
    groups._spare.clear()
    groups._number = 1

    def slow(host: str, port: int, timeout_s: float) -> TCPStore:
        groups._number = meanwhile
        return connect(host, port, timeout_s)

    monkeypatch.setattr("runtime.elastic.groups.connect", slow)
    groups._connect_ahead(1)
    assert len(groups._spare) == (1 if meanwhile == 1 else 0)
