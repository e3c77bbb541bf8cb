"""What belongs to a process, and must be each rank's own where several share one: random numbers and environment."""

import os
import random
import sys
from importlib import import_module
from typing import Any

import torch


class Belongings:
    """One rank's share: put away when its turn ends, taken out when the next one begins.

    The states of the CPU's generator, of the rank's device's, of `random` and of numpy's global generator (where numpy
    is loaded); what DTensor does with certain operators, which `loss_parallel` changes while it is entered; `RANK`,
    `LOCAL_RANK`, `WORLD_SIZE` and `LOCAL_WORLD_SIZE` as torchrun sets them. A rank begins with the random numbers that
    the process had when its run began, its device with the CPU's, as processes begin with the same seed.
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self._variables: dict[str, str | None] = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
        }
        self._rank = rank
        self._numpy: Any = None
        self._handlers: dict[Any, Any] = {}
        self._device: torch.Tensor | None = None
        self.put_away()
        self._handlers = dict(self._handlers)  # a rank's own from now on
        self._device = self._torch.clone() if self._has_own_generator() else None  # as rank 0's device has

    @classmethod
    def of_process(cls) -> "Belongings":
        """What the process has now, to be taken out again after a run."""
        found = cls(0, 1)
        found._handlers = _dtensor_dispatcher()._custom_op_handlers
        found._variables = {name: os.environ.get(name) for name in found._variables}
        return found

    def put_away(self) -> None:
        """Keeps the random numbers' states; variables are as they were set."""
        self._torch = torch.default_generator.get_state()
        self._device = _sim().get_rng_state(self._rank) if self._has_own_generator() else None
        self._python = random.getstate()
        self._handlers = _dtensor_dispatcher()._custom_op_handlers
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            self._numpy = numpy.random.get_state()

    def take_out(self) -> None:
        """Makes them the process's."""
        torch.default_generator.set_state(self._torch)
        if self._device is not None:
            _sim().set_rng_state(self._device, self._rank)
        random.setstate(self._python)
        _dtensor_dispatcher()._custom_op_handlers = self._handlers
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        for name, value in self._variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _has_own_generator(self) -> bool:
        """Device `sim:0` draws from the CPU's; `torch.manual_seed` seeds the generators of all devices."""
        return _sim() is not None and 0 < self._rank < _sim().device_count()


def _dtensor_dispatcher() -> Any:
    return import_module("torch.distributed.tensor").DTensor._op_dispatcher


def _sim() -> Any:
    """The module `torch.sim`, which is there once device sim has been set up."""
    return getattr(torch, "sim", None)
