"""What stays on the device from step to step: a model's parameters and buffers, and its optimizers' states."""

import logging
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from runtime.loop.hooks import OptimizerHooks
from runtime.storage.gathering import gather

LOG = logging.getLogger("bayplan.recompute")
_HOOKS = OptimizerHooks()


class Staying:
    """Once optimizers have stepped, moves what stays into few segments: they made their states among activations.

    `over` says whether the passes before are over; `before` is called before anything moves.
    """

    def __init__(self, model: nn.Module, over: Callable[[], bool], before: Callable[[], None]) -> None:
        self._model, self._over, self._before = weakref.ref(model), weakref.WeakMethod(over), before  # no cycle
        self._optimizers = weakref.WeakSet[Optimizer]()
        self._watches = self._done = False

    def watch(self) -> None:
        """From here on see who steps."""
        if not self._done and not self._watches:
            self._watches = True
            _HOOKS.add(self)

    def stop(self) -> None:
        """See no more."""
        if self._watches:
            self._watches = False
            _HOOKS.remove(self)

    def end(self) -> None:
        """The first step is over: what stays was moved, or does now."""
        if not self._done:
            self._done = True
            self.stop()
            if not self._optimizers:
                self._gather()

    def before_step(self, around: FrameType, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer begins to step."""

    def after_step(self, optimizer: Optimizer) -> None:
        """It has stepped; in the midst of a backward pass, or before a pass that is to come, activations are there."""
        over = self._over()
        if over is not None and optimizer not in self._optimizers and torch._C._current_graph_task_id() < 0 and over():
            self._optimizers.add(optimizer)
            self._gather()

    def _gather(self) -> None:
        self._before()
        try:
            gather(self._model(), *self._optimizers)
        except RuntimeError as error:  # the host has no room: what is there comes back when it is used
            LOG.debug("what stays on the device was not put together: %s", error)
