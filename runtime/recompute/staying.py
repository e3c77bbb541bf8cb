"""What stays on the device from step to step: a model's parameters and buffers, and its optimizers' states."""

import weakref
from types import FrameType
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer

from runtime.loop.hooks import OptimizerHooks
from runtime.storage.gathering import gather

_HOOKS = OptimizerHooks()


class Staying:
    """Sees which optimizers step, and once moves what stays into few segments: they made their states among activations.

    Where segments are expandable, or there are none, nothing moves.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model, self._optimizers = weakref.ref(model), weakref.WeakSet[Optimizer]()
        self._watches = self.gathered = False

    def watch(self) -> None:
        """From here on see who steps, until what stays was moved."""
        if not self.gathered and not self._watches:
            self._watches = True
            _HOOKS.add(self)

    def stop(self) -> None:
        """See no more."""
        if self._watches:
            self._watches = False
            _HOOKS.remove(self)

    def gather(self) -> None:
        """Move it, once."""
        if not self.gathered:
            self.gathered = True
            self.stop()
            gather(self._model(), *self._optimizers)

    def before_step(self, around: FrameType, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer begins to step."""

    def after_step(self, optimizer: Optimizer) -> None:
        """It has stepped."""
        self._optimizers.add(optimizer)
