"""The log of a training: one JSON object a line, as it happens, and the parts of each recovery from it."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from runtime.elastic.outcome import PARTS, Recovery
from runtime.elastic.room import require_room

LOGGER = logging.getLogger("bayplan.elastic")
"""Hears at once of what has gone wrong but does not end the training."""

Watcher = Callable[[Mapping[str, object]], None]
"""Is shown each event as it happens; called on the supervisor's thread, so it must not wait."""


class EventLog:
    """Keeps events, with seconds since the start, and writes them to `events.jsonl` in a folder if there is one."""

    def __init__(self, folder: Path | None, watch: Watcher | None = None) -> None:
        self._watch = watch
        self.events: list[dict[str, object]] = []
        self.warnings: list[str] = []
        self._began = time.monotonic_ns()
        self._file: IO[str] | None = None
        self._lost = False
        self._path = None if folder is None else folder / "events.jsonl"
        if self._path is not None:
            require_room(self._path.parent, "the event log", "run_dir")

    def add(self, event: str, at_ns: int | None = None, **more: object) -> None:
        """Something happened, now or at that moment of the machine's monotonic clock."""
        moment = ((time.monotonic_ns() if at_ns is None else at_ns) - self._began) / 1e9
        line: dict[str, object] = {"at_s": round(moment, 6), "event": event, **more}
        self.events.append(line)
        if self._watch is not None:
            self._watch(line)
        if self._path is None or self._lost:
            return
        try:
            if self._file is None:  # what an earlier run left there stays until something happens
                self._file = self._path.open("w", encoding="utf-8", buffering=1)
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        """Training is worth more than its log: it goes on, and says so."""
        file, self._file, self._lost = self._file, None, True
        if file is not None:
            with suppress(OSError):  # what is still buffered does not fit either
                file.close()
        self.warn(
            f"the event log could not be written any more ({error.strerror}): training goes on, and events.jsonl ends "
            "here; make room for the next run"
        )

    def warn(self, sentence: str) -> None:
        """Something has gone wrong that does not end the training: an event, a warning, and a part of the outcome."""
        self.warnings.append(sentence)
        LOGGER.warning(sentence)
        self.add("warning", sentence=sentence)

    def close(self) -> None:
        """Nothing more comes."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._lose(error)


@dataclass
class Stopwatch:
    """The moments of one change of generation, in ns of the machine's monotonic clock; None: not yet, or not known."""

    failed: int | None = None
    known: int | None = None
    stopped: int | None = None
    decided: int | None = None
    grouped: int | None = None
    transferred: int | None = None
    stepped: int | None = None
    received_bytes: int = 0
    waiting: dict[str, set[int]] = field(default_factory=dict)

    def parts_us(self) -> dict[str, int | None]:
        """By `PARTS`. Survivors stop between `known` and `stopped`, which is part of regrouping."""
        decide = _between(self.stopped, self.decided)
        regroup = _between(self.known, self.grouped)
        if regroup is not None and decide is not None:
            regroup -= decide
        detect, transfer = _between(self.failed, self.known), _between(self.grouped, self.transferred)
        values = (detect, decide, regroup, transfer, _between(self.transferred, self.stepped))
        return dict(zip(PARTS, values, strict=True))

    def stop_us(self) -> int | None:
        """How long survivors took to stop and report: a part of regrouping."""
        return _between(self.known, self.stopped)


def _between(begin: int | None, end: int | None) -> int | None:
    return None if begin is None or end is None else max(0, end - begin) // 1000


@dataclass(frozen=True)
class Change:
    """A change of generation as the supervisor knows it, with its stopwatch; `recovery` is it in the end."""

    generation: int
    step: int
    nodes: int
    lost: tuple[int, ...]
    joined: tuple[int, ...]
    moved: int
    layout: str
    why: str
    restored: str
    watch: Stopwatch

    def recovery(self) -> Recovery:
        """The finished record."""
        return Recovery(
            self.generation, self.step, self.nodes, self.lost, self.joined, self.moved, self.watch.received_bytes,
            self.layout, self.why, self.restored, self.watch.parts_us(),
        )  # fmt: skip
