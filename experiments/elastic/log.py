"""A training's event log read again: each recovery with the moments of all its nodes, and the steps of each layout."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from solvers.ir.codec import read_text
from solvers.ir.errors import InvalidInput

EVENTS = "events.jsonl"
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """What was done to a node, told by itself right before; `how` is kill or stop, and nothing for a lost vote."""

    node: int
    at_s: float
    moment: str
    how: str
    step: int


@dataclass
class Attempt:
    """One generation that ends and the next one: when the first was known to be over, and when each node was where.

    `called` is the event of the next generation; it is absent where the log ends.
    """

    known_s: float
    why: str
    before: tuple[int, ...]
    left_s: dict[int, float] = field(default_factory=dict)
    called: Event | None = None
    grouped_s: dict[int, float] = field(default_factory=dict)
    transferred_s: dict[int, float] = field(default_factory=dict)
    received_bytes: dict[int, int] = field(default_factory=dict)


@dataclass
class Episode:
    """From a failure, or the wish of a node to join, to the first step that counted; more attempts than one where
    a recovery was cut short by a further failure. `parts_us` are the last attempt's."""

    attempts: list[Attempt]
    failures: list[Failure]
    stepped_s: float
    step: int
    parts_us: Mapping[str, int | None]

    @property
    def began_s(self) -> float:
        """The first failure where it is known, else when it was noticed."""
        return min([self.attempts[0].known_s, *(one.at_s for one in self.failures)])


def read_events(folder: Path) -> list[Event]:
    """The events of a run's folder; raises `InvalidInput` where there is no log, or it is none of ours."""
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder {folder}: name one that bayplan train experiment=elastic has written")
    path = folder / EVENTS
    if not path.is_file():
        raise InvalidInput(f"{folder} has no {EVENTS}: name a folder of bayplan train experiment=elastic")
    events: list[Event] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        try:
            event = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"{path} line {number} is no JSON ({error.msg}): the log was cut or changed") from error
        if not isinstance(event, dict) or not isinstance(event.get("at_s"), int | float) or "event" not in event:
            raise InvalidInput(f"{path} line {number} is no event: it needs at_s and event")
        events.append(event)
    return events


def episodes_of(events: Iterable[Event]) -> list[Episode]:
    """All recoveries that came to a step, in order; raises `InvalidInput` where an event lacks what it should say."""
    reader = _Reader()
    try:
        for event in events:
            reader.take(event)
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"the event log is another version's ({error} is missing): train again") from error
    return reader.found


class _Reader:
    """Events come in the order in which the supervisor took them, their times are those at which they happened."""

    def __init__(self) -> None:
        self.found: list[Episode] = []
        self._attempts: list[Attempt] = []
        self._failures: list[Failure] = []
        self._members: tuple[int, ...] = ()

    def take(self, event: Event) -> None:
        """One more event."""
        at = event["at_s"]
        match event["event"]:
            case "injected":
                how = "" if event["moment"] == "unheard" else event["how"]
                self._failures.append(Failure(event["node"], at, event["moment"], how, event["step"]))
            case "lost":
                self._attempts.append(Attempt(at, event["why"], self._members))
            case "generation":
                self._members = tuple(event["nodes"])
                if self._attempts:
                    self._attempts[-1].called = event
            case "left" | "grouped" | "transferred" if self._attempts:
                self._moment(event)
            case "recovered":
                self._recovered(event)

    def _moment(self, event: Event) -> None:
        attempt, node, at = self._attempts[-1], event["node"], event["at_s"]
        match event["event"]:
            case "left":
                attempt.left_s[node] = at
            case "grouped":
                attempt.grouped_s[node] = at
            case "transferred":
                attempt.transferred_s[node] = at
                attempt.received_bytes[node] = event["received_bytes"]

    def _recovered(self, event: Event) -> None:
        called = self._attempts[-1].called if self._attempts else None
        if called is not None:
            self.found.append(Episode(self._attempts, self._failures, event["at_s"], called["step"], event["parts_us"]))
        self._attempts, self._failures = [], []


@dataclass(frozen=True)
class Trained:
    """The steps of one layout: the event that began it, and how long each step took, the first one left out.

    The first one after a recovery also makes what a process makes once.
    """

    called: Event
    took_us: Sequence[int]


def trained_of(events: Iterable[Event]) -> list[Trained]:
    """Layouts with their steps, in order."""
    found: list[tuple[Event, list[int]]] = []
    for event in events:
        if event["event"] == "generation":
            found.append((event, []))
        elif event["event"] == "step" and found:
            found[-1][1].append(event["took_us"])
    return [Trained(called, tuple(took[1:])) for called, took in found]
