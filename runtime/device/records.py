"""What the simulated devices tell of what happened on them: accesses, races, kernels and copies, counts."""

from dataclasses import dataclass
from typing import NamedTuple


class Touch(NamedTuple):
    """One access of a race: an operation of a stream (by its id) that read or wrote bytes of a block.

    The host's own accesses, and those of its worker's tasks, count as a stream each; the race's sentence names them.
    """

    op: str
    write: bool
    stream: int
    number: int
    begin: int
    end: int
    label: str
    device: int = 0


class Race(NamedTuple):
    """Two accesses to common bytes, at least one of them a write, that no wait orders."""

    first: Touch
    second: Touch
    block: str
    sentence: str


class TraceRecord(NamedTuple):
    """A kernel or copy on the virtual clock, on a stream (by its id) of a device (by its index).

    `kind` is its operator class, `to device`, `to host`, `peer` (a copy to another device), `comm` (a collective) or
    `host` (a task of the host's worker, which counts as a stream here).
    """

    stream: int
    op: str
    label: str
    kind: str
    start_ns: int
    end_ns: int
    bytes: int
    device: int = 0

    @property
    def name(self) -> str:
        """The operator, after the label that the program gave, if any."""
        return f"{self.label}: {self.op}" if self.label else self.op


@dataclass(frozen=True)
class Counters:
    """What happened on a device since the last reset; `fallbacks` are operators that ran through CPU kernels.

    `event_queries` are the allocator's looks at events of recorded streams, `event_records` and `stream_waits` what
    streams were given to record and to wait for; page-locked memory is the process's.
    """

    kernels: int
    fallbacks: int
    bytes_to_device: int
    bytes_to_host: int
    bytes_to_peers: int
    event_queries: int
    event_records: int
    stream_waits: int
    pinned_bytes: int
    pinned_peak_bytes: int
