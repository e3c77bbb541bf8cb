"""The supervisor's side of checkpoints: makes them of the nodes' parts, and says which one to go back to."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import NamedTuple, Protocol

from runtime.elastic.checkpoint import Checkpoint, aside, finish, left_aside, newest
from runtime.elastic.events import EventLog
from runtime.elastic.faults import in_words
from runtime.elastic.messages import Saved, Saving


class Kept(NamedTuple):
    """A checkpoint is whole on disk, or could not be made: then `fault` is not empty."""

    step: int
    generation: int
    took_us: int
    size_bytes: int
    fault: str


class Inbox(Protocol):
    """Where news of threads go."""

    def put(self, news: Kept, /) -> None:
        """Takes a piece of news, from any thread."""


class Keeper:
    """Follows the parts of each checkpoint; None for `saving`: there are none."""

    def __init__(self, saving: Saving | None, inbox: Inbox, log: EventLog) -> None:
        self._saving, self._inbox, self._log = saving, inbox, log
        self._parts: dict[tuple[int, int], set[int]] = {}  # layers that are there, by step and generation
        self._failed: set[tuple[int, int]] = set()
        self._busy = 0
        self._thread: Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being finished."""
        return self._busy > 0

    def saved(self, message: Saved, losses: Mapping[int, float]) -> None:
        """A part is written, or could not be; the last one makes the checkpoint whole."""
        if self._saving is None:
            return
        key = message.step, message.generation
        if key in self._failed:
            self._drop(aside(self._folder, *key))  # others have gone on writing into it
            return
        if message.fault:
            self._parts.pop(key, None)
            self._failed.add(key)
            self._log.warn(
                f"the checkpoint of step {message.step} was not written ({message.fault} on node {message.node}): "
                "training goes on, and the one before stays the last"
            )
            self._drop(aside(self._folder, *key))
            return
        there = self._parts.setdefault(key, set())
        there.update(message.layers)
        if len(there) == self._saving.origin.layers:
            del self._parts[key]
            self._busy += 1
            self._thread = Thread(target=self._finish, args=(key, dict(losses), self._thread), daemon=True)
            self._thread.start()

    def _finish(self, key: tuple[int, int], losses: dict[int, float], before: Thread | None) -> None:
        assert self._saving is not None
        began = time.monotonic_ns()
        if before is not None:
            before.join()  # they are made in order, each removing the oldest
        made, fault = None, "its parts are gone"
        try:
            made = finish(aside(self._folder, *key), self._saving.origin, losses, self._saving.keep)
        except Exception as error:  # whoever waits for this thread is to hear of any
            fault = in_words(error)
        size = sum(one.bytes for one in made.manifest.files.values()) if made else 0
        took_us = (time.monotonic_ns() - began) // 1000
        self._inbox.put(Kept(*key, took_us, size, "" if made else fault))

    def kept(self, news: Kept) -> None:
        """A checkpoint has been finished."""
        self._busy -= 1
        if news.fault:
            self._log.warn(
                f"the checkpoint of step {news.step} could not be finished ({news.fault}): training goes on, and the "
                "one before stays the last"
            )
            self._drop(aside(self._folder, news.step, news.generation))
            return
        self._log.add("checkpoint", step=news.step, took_us=news.took_us, size_bytes=news.size_bytes)
        for old in [key for key in self._parts if key[0] < news.step]:
            del self._parts[old]
            self._failed.add(old)  # who still writes into it finds its folder gone, which is nobody's fault
            self._log.add("checkpoint-dropped", step=old[0], why="a node has ended before its part was written")
            self._drop(aside(self._folder, *old))

    def go_back(self, most_step: int) -> Checkpoint | None:
        """The checkpoint to begin from where peers cannot give all layers; each that is refused is told."""
        if self._saving is None:
            return None
        if self._thread is not None:
            self._thread.join()
        found, refused = newest(self._folder, self._saving.origin, most_step)
        for sentence in refused:
            self._log.warn(f"{sentence}: it is not used")
        return found

    def close(self) -> None:
        """Nothing more comes: what is unfinished goes."""
        if self._saving is not None:
            for folder in left_aside(self._folder):
                self._drop(folder)

    @property
    def _folder(self) -> Path:
        assert self._saving is not None
        return Path(self._saving.folder)

    def _drop(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
