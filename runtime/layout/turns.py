"""Whose turn it is: one thread runs a model at a time, with those that its forward begins and waits for."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock, Thread, get_ident
from weakref import WeakSet

import torch


class Turns:
    """Of one model, for as long as it is wrapped."""

    def __init__(self) -> None:
        self.lock = RLock()
        self._trains_in: int | None = None
        self._forward_in: int | None = None
        self._begun = WeakSet[Thread]()
        _let_threads_tell()
        with _ADDING:
            _ALL.add(self)

    @contextmanager
    def forward(self, *, trains: bool) -> Iterator[None]:
        """A forward of the model runs inside, in this thread, whose turn it is."""
        self._forward_in = get_ident()
        self._trains_in = self._forward_in if trains else None
        try:
            yield
        finally:
            self._forward_in = self._trains_in = None

    @property
    def running(self) -> bool:
        """Whether the forward of a step runs in this thread."""
        return self._trains_in == get_ident()

    @property
    def begun_inside(self) -> bool:
        """Whether a forward of another thread runs that began this one: it may wait for it, so this one must not."""
        return self._forward_in not in (None, get_ident()) and threading.current_thread() in self._begun

    @property
    def helps(self) -> bool:
        """The same, also of threads that were there before (a pool's): of these one that evaluates has no gradients."""
        return self._forward_in not in (None, get_ident()) and (torch.is_grad_enabled() or self.begun_inside)

    @property
    def helps_training(self) -> bool:
        """Whether that forward trains."""
        return self._trains_in is not None and self.helps

    def begins(self, thread: Thread) -> None:
        """This thread is about to begin another one."""
        if self._forward_in == get_ident() or self.begun_inside:
            self._begun.add(thread)


_ALL = WeakSet[Turns]()
_ADDING = RLock()  # of models to those: a thread that begins another one goes through them


@cache
def _let_threads_tell() -> None:
    """From now on: nobody else says which thread began another one."""
    start = Thread.start

    def telling(self: Thread) -> None:
        with _ADDING:
            all_turns = list(_ALL)
        for turns in all_turns:
            turns.begins(self)
        start(self)

    Thread.start = telling  # type: ignore[method-assign]
