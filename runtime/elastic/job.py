"""What is trained: layers, loss, batches and optimizer, as a factory `MODULE:FACTORY` names them."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn

from solvers.ir.errors import BayplanError, InvalidInput


@dataclass(frozen=True, kw_only=True)
class ElasticJob:
    """A training job that may be cut between any two of its layers.

    `layers[i]()` makes layer i, a module from one tensor to one tensor (its parameters are no other layer's);
    `loss(output, targets)` is a microbatch's mean loss, a scalar; `batches(step, microbatch)` gives its (inputs,
    targets), of the same shapes each time; `optimizer(parameters)` makes the optimizer of one layer's parameters. A
    step's loss is the mean over its `microbatches`. Random numbers come from `seed`.
    """

    layers: Sequence[Callable[[], nn.Module]]
    loss: Callable[[Tensor, Tensor], Tensor]
    batches: Callable[[int, int], tuple[Tensor, Tensor]]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    microbatches: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a job without layers or microbatches."""
        if not self.layers:
            raise InvalidInput("the job has no layers: give at least one")
        if self.microbatches < 1:
            raise InvalidInput(f"the job has {self.microbatches} microbatches a step: give at least 1")


def load_job(name: str, device: torch.device) -> ElasticJob:
    """The job that `MODULE:FACTORY` makes for a device, of the working directory or Python's path.

    Raises `InvalidInput` where there is none.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InvalidInput(f"the job is {name!r}: write MODULE:FACTORY, as in experiments.elastic.llama:job")
    if (folder := str(Path.cwd())) not in sys.path:  # where a command is given, as `python -m` has it
        sys.path.append(folder)
    try:
        factory = getattr(import_module(module), attribute)
    except Exception as error:  # whatever the user's module raises
        raise InvalidInput(f"the job {name!r} cannot be loaded ({error}): correct MODULE:FACTORY") from error
    try:
        made = factory(device)
    except BayplanError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise InvalidInput(
            f"the job {name!r} cannot be made ({said}): give a function of a device that returns an ElasticJob"
        ) from error
    if not isinstance(made, ElasticJob):
        raise InvalidInput(f"the job {name!r} makes a {type(made).__name__}: return a runtime.elastic.ElasticJob")
    return made
