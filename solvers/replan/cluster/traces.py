"""Recorded failures: lines `milliseconds,add|remove,node`, as the public traces of spot instances come.

A first line may name the columns, in any order and among others: `time` (or `milliseconds`, `ms`; `seconds`, `s`),
`event`, `node` (or `instance`, `name`).
"""

import csv
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Literal

from solvers.ir import InvalidInput
from solvers.replan.cluster.failures import Event, Failures

Start = Literal["full", "empty"]
MILLISECOND_US = 1000
LONGEST_MS = 2**53 // MILLISECOND_US
MOST_SHOWN = 60
"""Letters of a faulty line that a message quotes."""
MOST_BYTES = 2**26
"""The largest trace that is read: some two million events."""
SECONDS = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
"""A number as files write it: ASCII digits, a fraction, an exponent."""
TIMES = {"time": 1000, "milliseconds": 1000, "ms": 1000, "time_ms": 1000, "seconds": 10**6, "s": 10**6, "time_s": 10**6}
"""Names of the column of times, and its unit in microseconds."""
EVENTS = ("event", "action", "type")
NODES = ("node", "instance", "name", "node_id", "instance_id")


def read_trace(path: Path, nodes: int, start: Start = "full") -> Failures:
    """The failures in the trace file `path`; `InvalidInput` where it holds none, and for a line that means nothing.

    The sentence names that line's number.
    """
    if path.is_dir():
        raise InvalidInput(f"{path}: the trace is a folder: give a text file")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InvalidInput(f"{path}: the trace has more than {MOST_BYTES:,} bytes: cut it into shorter ones")
        lines = content.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: the trace cannot be read ({error}): give a text file") from None
    failures = parse_trace(lines, nodes, start, str(path))
    if not failures.events:
        raise InvalidInput(f"{path} holds no event: write lines milliseconds,add|remove,node")
    return failures


def parse_trace(lines: Iterable[str], nodes: int, start: Start = "full", source: str = "trace") -> Failures:
    """The failures that the lines tell of.

    `full`: the cluster's nodes 0…nodes−1 are all present at time 0, and the trace names them by number. `empty`: none
    is; nodes have any names, and an added one takes a place 0…nodes−1: its own if it had one that is still free, else
    one that nobody had yet, else the one that is free the longest (spot instances come back under other names). Empty
    lines and lines beginning with # are passed over. Lines of one millisecond happen together.
    """
    if start not in ("full", "empty"):
        raise InvalidInput(f"a trace starts {start!r}: choose full or empty")
    reader = _Reader(nodes, start == "full")
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                reader.read(line)
            except InvalidInput as error:
                raise InvalidInput(f"{source}, line {number}: {error}") from None
    if reader.most > nodes:
        raise InvalidInput(
            f"{source}: {reader.most} nodes are present at once, but the cluster has {nodes}: "
            f"give {reader.most - nodes} more as spares"
        )
    absent = frozenset() if start == "full" else frozenset(range(nodes))
    return Failures(tuple(reader.events), absent)


class _Reader:
    """The nodes present so far, and the places of those that are named; `free`: the others, the first taken first."""

    def __init__(self, nodes: int, full: bool) -> None:
        self.nodes = nodes
        self.numbers: dict[str, int] = {str(node): node for node in range(nodes)} if full else {}
        self.named = not full
        self.present = set(range(nodes)) if full else set()
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(() if full else range(nodes))
        self.owner: dict[int, str] = {}
        self.columns, self.unit_us, self.width = (0, 1, 2), MILLISECOND_US, 3
        self.headed, self.most = False, nodes
        self.events: list[Event] = []

    def read(self, line: str) -> None:
        try:
            fields = [field.strip() for field in next(csv.reader([line], strict=True))]
        except csv.Error as error:
            raise InvalidInput(f"{_shown(line)} is no line of CSV ({error}): correct it") from None
        if not self.events and not self.headed and self._head(fields):
            return
        if len(fields) != self.width:
            raise InvalidInput(
                f"{_shown(line)} has not {self.width} fields but {len(fields)}: write milliseconds,add|remove,node"
            )
        time, event, node = (fields[column] for column in self.columns)
        at_us = self._time(time)
        if event not in ("add", "remove"):
            raise InvalidInput(f"{_shown(event)} is neither add nor remove: write one of them")
        if event == "add":
            self._add(at_us, node)
        else:
            self._remove(at_us, node)

    def _head(self, fields: Sequence[str]) -> bool:
        """Whether the fields name the columns; then these are taken from there on."""
        names = [field.lower() for field in fields]
        found = [[number for number, name in enumerate(names) if name in known] for known in (TIMES, EVENTS, NODES)]
        if not all(found):
            return False
        self.headed, self.width = True, len(names)
        self.columns = (found[0][0], found[1][0], found[2][0])
        self.unit_us = TIMES[names[found[0][0]]]
        return True

    def _time(self, text: str) -> int:
        at_us = self._seconds(text) if self.unit_us != MILLISECOND_US else self._milliseconds(text)
        if self.events and at_us < self.events[-1].at_us:
            unit = "ms" if self.unit_us == MILLISECOND_US else "s"
            before = f"{Decimal(self.events[-1].at_us) / self.unit_us:f} {unit}"
            raise InvalidInput(f"the time {text} {unit} is before {before}, the line before it: sort the trace by time")
        return at_us

    def _milliseconds(self, text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or len(text) > 16 or int(text) > LONGEST_MS:
            raise InvalidInput(
                f"the time {_shown(text)} is not a whole number of milliseconds from 0 to {LONGEST_MS}: correct it"
            )
        return int(text) * MILLISECOND_US

    def _seconds(self, text: str) -> int:
        """Seconds may have a fraction, down to the millisecond, which is what happens together."""
        seconds = Decimal(text) if len(text) <= 32 and SECONDS.fullmatch(text) else Decimal(-1)
        milliseconds = seconds * 1000 if 0 <= seconds <= LONGEST_MS else Decimal(-1)
        if not 0 <= milliseconds <= LONGEST_MS:
            most = LONGEST_MS // 1000
            raise InvalidInput(f"the time {_shown(text)} is not a number of seconds from 0 to {most}: correct it")
        return int(milliseconds) * MILLISECOND_US

    def _add(self, at_us: int, name: str) -> None:
        node = self._taken(name) if self.named else self._numbered(name)
        if node in self.present:
            more = "" if self.named else ", or say that the cluster starts empty (start=empty)"
            raise InvalidInput(f"node {_shown(name)} is added, but it is present already: drop the line{more}")
        self.present.add(node)
        self.free.pop(node, None)
        self.events.append(Event(at_us, node, "repaired"))

    def _remove(self, at_us: int, name: str) -> None:
        node = self.numbers.get(name) if self.named else self._numbered(name)
        if node is None or node not in self.present or (self.named and self.owner[node] != name):
            raise InvalidInput(f"node {_shown(name)} is removed, but it is absent: drop the line")
        self.present.remove(node)
        self.free[node] = None
        self.events.append(Event(at_us, node, "failed"))

    def _numbered(self, name: str) -> int:
        """A node that the trace names by its number."""
        node = self.numbers.get(name)
        if node is None:
            raise InvalidInput(
                f"node {_shown(name)} is none of 0…{self.nodes - 1}: name a node of the cluster, "
                "or say that it starts empty (start=empty)"
            )
        return node

    def _taken(self, name: str) -> int:
        """The place of a node that is added by its name."""
        if not name:
            raise InvalidInput("the node has no name: write milliseconds,add|remove,node")
        known = self.numbers.get(name)
        if known is not None and self.owner[known] == name:
            return known
        node = next(iter(self.free), len(self.present))  # beyond the cluster's: counted, and refused at the end
        self.most = max(self.most, node + 1)
        self.numbers[name], self.owner[node] = node, name
        return node


def _shown(text: str) -> str:
    """A piece of the file as a message quotes it."""
    text = text.strip()
    return repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…")
