"""The process groups of one generation over gloo: all members, and those that share a layer."""

import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Thread
from typing import Any

from torch import Tensor
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import TCPStore

from runtime.elastic.faults import PeerLost, SupervisorLost
from runtime.elastic.sockets import Sockets
from runtime.elastic.store import connect

LOOK_S = 0.02
"""How often it is looked whether a generation that is being formed has ended."""
MOMENT_S = 0.2
"""What a sum may take to end once its connections are cut."""
Made = dict[tuple[int, ...], Any]
"""Groups by their nodes."""
Found = queue.SimpleQueue[Made | str]
"""Where the thread that makes groups leaves them, or says why there are none."""


@contextmanager
def peers() -> Iterator[None]:
    """What goes wrong in here is a peer's end, or its silence."""
    try:
        yield
    except (RuntimeError, SupervisorLost) as error:
        said = (str(error).strip().splitlines() or ["nothing said"])[0]
    else:
        return
    raise PeerLost(said)  # outside of the handler: an error that is kept would keep the groups


class Groups:
    """Opens connections between all `members` (node numbers by rank), and again for each set that shares layers.

    Groups are made without torch.distributed's default group, which processes cannot leave one by one.
    """

    def __init__(self, host: str, port: int, timeout_s: float, sockets: Sockets) -> None:
        self._address, self._timeout_s, self._sockets = (host, port), timeout_s, sockets
        self._device = c10d.ProcessGroupGloo.create_device(hostname=host)
        # To connect is to look a name up, of which seconds can come where a name server does not answer: ahead, then.
        self._spare: list[TCPStore] = [connect(host, port, timeout_s)]
        self._made: Made = {}
        self._members: tuple[int, ...] = ()
        self._number = -1
        self._summing: list[Any] = []
        self._kept: list[tuple[list[Any], Made]] = []

    def open(self, number: int, node: int, members: Sequence[int], sets: Mapping[int, tuple[int, ...]]) -> None:
        """Meets the others of generation `number`; raises `PeerLost` where one of them does not come."""
        self._members, self._number = tuple(members), number
        self._sockets.begin(number)
        mine = sorted({one for one in sets.values() if node in one and one != self._members})
        # A group that waits for a peer to connect has no socket that could be shut down, and waits for longer than its
        # timeout. So a thread of its own makes the groups, and is left behind where the generation ends meanwhile.
        found: Found = queue.SimpleQueue()
        asked = number, node, [self._members, *mine]  # in one order everywhere, so that no two wait for each other
        Thread(target=self._meet, args=(*asked, found), daemon=True).start()
        self._made = self._met(number, found)
        self._sockets.settle()
        if not self._spare:
            Thread(target=self._connect_ahead, args=(number,), daemon=True).start()

    def _meet(self, number: int, node: int, sets: list[tuple[int, ...]], found: Found) -> None:
        made: Made = {}
        try:
            with peers():
                ahead = bool(self._spare)
                store = self._spare.pop() if ahead else connect(*self._address, self._timeout_s)
                for one in sets:
                    if self._sockets.is_lost(number):
                        return
                    name = c10d.PrefixStore(f"generation {number}: {one}", store)
                    made[one] = c10d.ProcessGroupGloo(name, one.index(node), len(one), self._options())
            if ahead:  # else it counts as one of this generation's sockets, and is cut with them
                self._spare.append(store)
        except PeerLost as error:
            found.put(str(error))
        else:
            found.put(made)

    def _connect_ahead(self, number: int) -> None:
        """For the generation after this one; what comes later than that is dropped."""
        with suppress(SupervisorLost):  # whoever needs it will see
            made = connect(*self._address, self._timeout_s)
            if self._number == number:  # else its socket may count as the next generation's, and be cut with those
                self._spare.append(made)

    def _met(self, number: int, found: Found) -> Made:
        """What the thread has made, unless the generation ends before."""
        until = time.monotonic() + self._timeout_s
        while not self._sockets.is_lost(number):
            try:
                made = found.get(timeout=LOOK_S)
            except queue.Empty:
                if time.monotonic() < until:
                    continue
                raise PeerLost(f"not all members came within {self._timeout_s:g} s") from None
            if isinstance(made, str):
                raise PeerLost(made)
            return made
        raise PeerLost(f"generation {number} has ended while it was formed")

    def _options(self) -> Any:
        kind: Any = c10d.ProcessGroupGloo  # its stub lacks the options
        options = kind._Options()
        options._devices = [self._device]
        options._timeout = timedelta(seconds=self._timeout_s)
        return options

    def send(self, value: Tensor, node: int, tag: int) -> Any:
        """Begins to send; what it returns is to be kept until the members' next sum, which no receiver enters before.

        It is not waited for: a send onto a connection that breaks right then is never said to have ended, by gloo.
        """
        with peers():
            return self._made[self._members].send([value], self._members.index(node), tag), value

    def recv(self, value: Tensor, node: int, tag: int) -> None:
        """Fills the tensor with what the node sends."""
        with peers():
            self._made[self._members].recv([value], self._members.index(node), tag).wait()

    def add_up(self, value: Tensor, nodes: tuple[int, ...] | None = None) -> Any:
        """Begins to sum a tensor over these nodes, by default all members, in place."""
        with peers():
            work = self._made[self._members if nodes is None else nodes].allreduce([value])
        self._summing.append(work)
        return work

    def wait(self, work: Any) -> None:
        """Until the sum is there; a generation that has ended ends the wait, too, though gloo may not have noticed."""
        if not self._has_ended(work):
            raise PeerLost("a sum did not end with its generation")
        self._summing.remove(work)
        with peers():
            work.wait()

    def _has_ended(self, work: Any) -> bool:
        """Waits, for as long as the generation goes on, and a moment longer."""
        done: queue.SimpleQueue[None] = queue.SimpleQueue()
        work.get_future().add_done_callback(lambda _: done.put(None))
        while True:
            over = self._sockets.is_lost(self._number)
            try:
                done.get(timeout=MOMENT_S if over else LOOK_S)
                return True
            except queue.Empty:
                if over:
                    return False

    def close(self, *, broken: bool) -> None:
        """Leaves the generation. A `broken` one is cut off first: groups wait for operations that are under way.

        Groups whose sums have not ended by then are kept until they have: to drop them would be to wait.
        """
        if broken:
            self._sockets.cut()
            self._sockets.lose(self._number)
        self._sockets.end()
        self._kept = [(works, made) for works, made in self._kept if not all(one.is_completed() for one in works)]
        if not all(map(self._has_ended, self._summing)):
            self._kept.append((self._summing, self._made))
        self._summing, self._made = [], {}
