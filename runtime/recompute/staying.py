"""What stays on the device from step to step: a model's parameters and buffers, and its optimizers' states."""

import logging
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer
from torch.utils.hooks import RemovableHandle

from runtime.loop.hooks import OptimizerHooks
from runtime.storage.access import tensors_in
from runtime.storage.gathering import gather

LOG = logging.getLogger("bayplan.recompute")
_HOOKS = OptimizerHooks()


class Staying:
    """Moves what stays into few segments, once: optimizers made their states among activations.

    That is where the model is called after a step, when neither activations nor, mostly, gradients are there; `over`
    says whether passes are. `before` is called before anything moves.
    """

    def __init__(self, model: nn.Module, over: Callable[[], bool], before: Callable[[], None]) -> None:
        self._model, self._over, self._before = weakref.ref(model), weakref.WeakMethod(over), before  # no cycle
        self._optimizers = weakref.WeakSet[Optimizer]()
        self._called: RemovableHandle | None = None
        self._done = False

    def watch(self) -> None:
        """From here on see who steps, and when the model is called."""
        if not self._done and self._called is None:
            self._called = register_module_forward_pre_hook(self._before_forward)
            _HOOKS.add(self)

    def stop(self) -> None:
        """See no more."""
        if self._called is not None:
            self._called.remove()
            self._called = None
            _HOOKS.remove(self)

    def end(self) -> None:
        """The first step is over: what stays was moved, or does now."""
        over = self._over()
        if self._called is not None and over is not None and over():
            self._gather()
        self._done = True
        self.stop()

    def tensors(self) -> Iterator[torch.Tensor]:
        """What stays, as far as it is known, and gradients."""
        return tensors_in([self._model(), *self._optimizers])

    def before_step(self, around: FrameType, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer begins to step."""

    def after_step(self, optimizer: Optimizer) -> None:
        """It has stepped."""
        self._optimizers.add(optimizer)

    def _before_forward(self, module: nn.Module, args: Any) -> None:
        over = self._over()
        if module is self._model() and self._optimizers and torch.is_grad_enabled() and over is not None and over():
            self._gather()

    def _gather(self) -> None:
        self._done = True
        self.stop()
        self._before()
        try:
            gather(self._model(), *self._optimizers)
        except RuntimeError as error:  # the host has no room: what is there comes back when it is used
            LOG.debug("what stays on the device was not put together: %s", error)
