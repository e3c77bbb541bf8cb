"""One's own model as an experiment's model."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy
import torch

from experiments.models.workload import Workload
from runtime.profile import call_theirs, load_factory
from solvers.ir import InvalidInput


@dataclass(frozen=True, kw_only=True)
class OwnModel:
    """What `MODULE:FACTORY` builds; it is called once for each policy and must build the same model each time.

    Random numbers of torch, numpy and Python start from `seed` before each call.
    """

    factory: str
    seed: int = 0
    recomputes: ClassVar[bool] = False

    def build(self, device: torch.device, *, recompute: bool = False) -> Workload:
        """Call the factory; raises `InvalidInput` where it does not exist, raises, or returns something else."""
        if recompute:
            raise InvalidInput(f"{self.factory} has no variant that recomputes: leave 'recompute' out of baselines")
        create = load_factory(self.factory)
        random.seed(self.seed)
        numpy.random.seed(self.seed)
        torch.manual_seed(self.seed)
        model, optimizer, step = call_theirs(lambda: create(device), self.factory)
        return Workload(model, optimizer, TheirStep(step, f"the step of {self.factory}"))


@dataclass(frozen=True)
class TheirStep:
    """One's own step: returns its loss, detached; raises `InvalidInput` where it raises or returns something else."""

    step: Callable[[], object]
    what: str

    def __call__(self) -> torch.Tensor:
        """Train for one step."""
        return self._loss(call_theirs(self.step, self.what))

    def bare(self) -> torch.Tensor:
        """The same with its errors as they are, for an executor that reads them."""
        return self._loss(self.step())

    def _loss(self, returned: object) -> torch.Tensor:
        if not isinstance(returned, torch.Tensor):
            found = f"a {type(returned).__name__}"
        elif returned.numel() != 1:
            found = f"shape {tuple(returned.shape)}"
        elif returned.is_complex():
            found = "a complex number"
        else:
            return returned.detach() if returned.requires_grad else returned
        raise InvalidInput(f"{self.what} returned {found}: it must return the loss, a tensor of one element")
