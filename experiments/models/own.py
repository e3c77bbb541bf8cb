"""One's own model as an experiment's model."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from experiments.models.workload import Workload
from runtime.profile import load_factory
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
        """Call the factory; raises `InvalidInput` where it does not exist or returns something else."""
        if recompute:
            raise InvalidInput(f"{self.factory} has no variant that recomputes: leave 'recompute' out of baselines")
        create = load_factory(self.factory)
        torch.manual_seed(self.seed)
        return Workload(*create(device))
