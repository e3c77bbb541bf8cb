"""Recorded failures: lines `milliseconds,add|remove,node`, as the traces of spot instances come."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from solvers.ir import InvalidInput
from solvers.replan.cluster.failures import Event, Failures

MILLISECOND_US = 1000
LONGEST_MS = 2**53 // MILLISECOND_US


def read_trace(path: Path, nodes: int, start: Literal["full", "empty"] = "full") -> Failures:
    """The failures in the trace file `path`; `InvalidInput` where it holds none, and for a line that means nothing.

    The sentence names that line's number.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: the trace cannot be read ({error}): give a text file") from None
    failures = parse_trace(lines, nodes, start, str(path))
    if not failures.events:
        raise InvalidInput(f"{path} holds no event: write lines milliseconds,add|remove,node")
    return failures


def parse_trace(
    lines: Iterable[str], nodes: int, start: Literal["full", "empty"] = "full", source: str = "trace"
) -> Failures:
    """The failures that the lines tell of.

    `full`: the cluster's nodes 0…nodes−1 are all present at time 0, and the trace names them by number. `empty`: none
    is; nodes have any names and are numbered in the order of their first `add`. Empty lines and lines beginning with #
    are passed over. Lines of one millisecond happen together.
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
    absent = frozenset() if start == "full" else frozenset(range(nodes))
    return Failures(tuple(reader.events), absent)


class _Reader:
    """The nodes present so far, and the numbers of those that are named."""

    def __init__(self, nodes: int, full: bool) -> None:
        self.nodes = nodes
        self.numbers: dict[str, int] = {str(node): node for node in range(nodes)} if full else {}
        self.named = not full
        self.present = set(range(nodes)) if full else set()
        self.events: list[Event] = []

    def read(self, line: str) -> None:
        try:
            fields = [field.strip() for field in next(csv.reader([line], strict=True))]
        except csv.Error as error:
            raise InvalidInput(f"{line.strip()!r} is no line of CSV ({error}): correct it") from None
        if len(fields) != 3:
            raise InvalidInput(
                f"{line.strip()!r} has not 3 fields but {len(fields)}: write milliseconds,add|remove,node"
            )
        at_us = self._time(fields[0])
        if fields[1] not in ("add", "remove"):
            raise InvalidInput(f"{fields[1]!r} is neither add nor remove: write one of them")
        if fields[1] == "add":
            self._add(at_us, fields[2])
        else:
            self._remove(at_us, fields[2])

    def _time(self, text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or len(text) > 16 or int(text) > LONGEST_MS:
            raise InvalidInput(f"the time {text!r} is not a whole number of milliseconds from 0 to {LONGEST_MS}")
        at_us = int(text) * MILLISECOND_US
        if self.events and at_us < self.events[-1].at_us:
            before = self.events[-1].at_us // MILLISECOND_US
            raise InvalidInput(f"the time {text} ms is before {before} ms, the line before it: sort the trace by time")
        return at_us

    def _add(self, at_us: int, name: str) -> None:
        if self.named and name and name not in self.numbers and len(self.numbers) < self.nodes:
            self.numbers[name] = len(self.numbers)
        node = self._number(name)
        if node in self.present:
            raise InvalidInput(f"node {name!r} is added, but it is present already: drop the line")
        self.present.add(node)
        self.events.append(Event(at_us, node, "repaired"))

    def _remove(self, at_us: int, name: str) -> None:
        node = self.numbers.get(name) if self.named else self._number(name)
        if node is None or node not in self.present:
            raise InvalidInput(f"node {name!r} is removed, but it is absent: drop the line")
        self.present.remove(node)
        self.events.append(Event(at_us, node, "failed"))

    def _number(self, name: str) -> int:
        node = self.numbers.get(name)
        if node is not None:
            return node
        if not self.named:
            raise InvalidInput(f"node {name!r} is none of 0…{self.nodes - 1}: name a node of the cluster")
        if not name:
            raise InvalidInput("the node has no name: write milliseconds,add|remove,node")
        raise InvalidInput(f"node {name!r} is one more than the cluster's {self.nodes}: raise nodes")
