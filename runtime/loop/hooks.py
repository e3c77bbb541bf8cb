"""PyTorch's hooks around optimizers' steps, once for all watchers: other threads' optimizers walk through the list."""

import sys
import threading
from types import FrameType
from typing import Any, Protocol

from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle


class StepWatcher(Protocol):
    """Who is told of optimizers' steps, on the thread that runs them."""

    def before_step(self, around: FrameType, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """A step begins, in PyTorch's frame `around` it; its arguments, if they are to be others."""
        ...

    def after_step(self, optimizer: Optimizer) -> None:
        """A step has ended; PyTorch does not say so where it raised."""
        ...


class OptimizerHooks:
    """Registered for the first watcher, and taken back by the last.

    PyTorch raises where its list of hooks changes while a thread is at it: so a session that starts as the first, or
    ends as the last, does so while no other thread's optimizer begins or ends a step.
    """

    def __init__(self) -> None:
        self._watchers: tuple[StepWatcher, ...] = ()
        self._handles: list[RemovableHandle] = []
        self._lock = threading.Lock()

    def add(self, watcher: StepWatcher) -> None:
        """Let a watcher know."""
        with self._lock:
            if not self._watchers:
                self._handles = [
                    register_optimizer_step_pre_hook(self._before_step),
                    register_optimizer_step_post_hook(self._after_step),
                ]
            self._watchers = (*self._watchers, watcher)

    def remove(self, watcher: StepWatcher) -> None:
        """Forget a watcher."""
        with self._lock:
            self._watchers = tuple(one for one in self._watchers if one is not watcher)
            if not self._watchers:
                for handle in self._handles:
                    handle.remove()

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        around, changed = sys._getframe(1), None
        for watcher in self._watchers:
            given = watcher.before_step(around, optimizer, args, kwargs)
            if given is not None:
                changed = args, kwargs = given
        return changed

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for watcher in self._watchers:
            watcher.after_step(optimizer)
