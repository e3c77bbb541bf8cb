"""The backend `sim` of torch.distributed: which ranks the group of a program's belongs to."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from runtime.ranks.ending import load_what_keeps_the_world
from runtime.ranks.group import BACKEND, RankDevice, SimGroup
from runtime.ranks.meeting import Key, Meeting, Part
from solvers.ir.errors import InvalidInput


class Transport(ABC):
    """What brings the shares of a group's members together."""

    @property
    @abstractmethod
    def ranks(self) -> int:
        """How many ranks there are in all."""

    @abstractmethod
    def mine(self) -> RankDevice:
        """What the calling rank has."""

    def open(self, key: Hashable, store: Any, member: int, members: int) -> None:  # noqa: B027
        """A group comes to be; `store` is its own."""

    @abstractmethod
    def arrive(self, key: Key, what: str, ranks: tuple[int, ...], part: Part) -> Meeting:
        """The calling rank comes to an operation, which happens when all have come."""

    @abstractmethod
    def wait(self, meeting: Meeting) -> None:
        """Returns once the operation has happened."""

    def poll(self, meeting: Meeting) -> None:
        """The calling rank has asked in vain whether the operation has happened, and may ask again and again."""
        self.wait(meeting)

    @abstractmethod
    def host_waits(self, mine: RankDevice, time_ns: int) -> None:
        """The rank's host goes on at that time."""

    @abstractmethod
    def host_ns(self, mine: RankDevice) -> int:
        """The rank's host clock."""


_transports: list[Callable[[], Transport | None]] = []


def current() -> Transport | None:
    """The transport of the calling rank; None where the caller is no rank."""
    for find in reversed(_transports):
        found = find()
        if found is not None:
            return found
    return None


@contextmanager
def register(find: Callable[[], Transport | None]) -> Iterator[None]:
    """Within the block `init_process_group("sim")` finds its ranks by `find`."""
    load_what_keeps_the_world()
    if not hasattr(dist.Backend, BACKEND.upper()):
        dist.Backend.register_backend(BACKEND, _make_group, extended_api=True, devices=["cpu", "sim"])
    _transports.append(find)
    try:
        yield
    finally:
        _transports.remove(find)


def _make_group(options: Any, _backend_options: Any = None) -> SimGroup:
    transport = current()
    if transport is None:
        raise InvalidInput(
            "a group 'sim' joins ranks of runtime.ranks: call init_process_group within run_ranks, or after join"
        )
    members = list(options.global_ranks_in_group) or list(range(transport.ranks))
    # A group may be destroyed and made again under the same name, by one member before another has made
    # the first: each counts how often it has.
    mine = transport.mine()
    member = members.index(mine.rank)
    generation = options.store.add(f"sim/{member}", 1)
    key = (options.group_id, generation)
    transport.open(key, options.store, member, len(members))
    return SimGroup(transport, mine, key, members)
