"""One's own model as an experiment's model."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from experiments.models.workload import Step, Workload
from runtime.profile import call_theirs, load_factory
from solvers.ir import InvalidInput


@dataclass(frozen=True, kw_only=True)
class OwnModel:
    """What `MODULE:FACTORY` builds; it is called once for each policy and must build the same model each time.

    Random numbers start from `seed` before each call.
    """

    factory: str
    seed: int = 0
    recomputes: ClassVar[bool] = False

    def build(self, device: torch.device, *, recompute: bool = False) -> Workload:
        """Call the factory; raises `InvalidInput` where it does not exist, raises, or returns something else."""
        if recompute:
            raise InvalidInput(f"{self.factory} has no variant that recomputes: leave 'recompute' out of baselines")
        create = load_factory(self.factory)
        torch.manual_seed(self.seed)
        model, optimizer, step = call_theirs(lambda: create(device), self.factory)
        return Workload(model, optimizer, self._guarded(step))

    def _guarded(self, step: Step) -> Step:
        what = f"the step of {self.factory}"

        def guarded() -> torch.Tensor:
            loss: object = call_theirs(step, what)
            if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
                found = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
                raise InvalidInput(f"{what} returned {found}: it must return the loss, a tensor of one element")
            return loss.detach() if loss.requires_grad else loss

        return guarded
