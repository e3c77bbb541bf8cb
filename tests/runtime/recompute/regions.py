"""What training leaves behind, with and without a tape around a region, in a form that can be compared bit by bit."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from runtime.recompute.tape import EVERYTHING, NOTHING, StorePolicy, Tape, record

Step = Callable[[], Tensor | tuple[Tensor, ...]]
"""A region: what it returns is summed, and the sum goes backward."""
Case = Callable[[torch.device], tuple[list[Tensor], Step]]
"""Builds, from a seed, the tensors to be looked at afterwards, and the region that reads them."""


@dataclass
class Outcome:
    """Everything that training leaves behind."""

    results: list[Tensor] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor | None] = field(default_factory=list)
    random: list[Tensor] = field(default_factory=list)
    names: tuple[str, ...] = ()
    replayed: int = 0


def trained(case: Case, device: torch.device, policy: StorePolicy | None, steps: int = 2, seed: int = 7) -> Outcome:
    """Two steps of training, each with its own tape; None: without one."""
    torch.manual_seed(seed)
    looked_at, region = case(device)
    outcome = Outcome()
    for _ in range(steps):
        with nullcontext() if policy is None else record(device, policy) as tape:
            made = region()
        made = made if isinstance(made, tuple) else (made,)
        outcome.results += [result.detach().clone() for result in made]
        if tape is not None:
            outcome.names = tuple(node.name for node in tape.nodes)
        backward(total(made))
        if tape is not None:
            outcome.replayed += tape.replayed_on_demand
    outcome.states = [tensor.detach().clone() for tensor in looked_at]
    outcome.gradients = [None if tensor.grad is None else tensor.grad.clone() for tensor in looked_at]
    outcome.random = [torch.get_rng_state()]
    if device.type != "cpu":
        outcome.random.append(torch.get_device_module(device).get_rng_state())
    return outcome


def total(made: tuple[Tensor, ...]) -> Tensor:
    """One number that every result has a share in."""
    parts = [torch.view_as_real(one) if one.is_complex() else one for one in made if one.requires_grad]
    return torch.stack([(one.float() * one.float()).sum() for one in parts]).sum()


def backward(loss: Tensor) -> None:
    """Takes a loss backward."""
    loss.backward()  # type: ignore[no-untyped-call]


def gradient(tensor: Tensor) -> Tensor:
    """The gradient that it has."""
    assert tensor.grad is not None
    return tensor.grad


def difference(expected: Outcome, found: Outcome) -> str | None:
    """The first thing that is not the same, bit for bit; None where all is."""
    for what in ("results", "states", "gradients", "random"):
        pairs = zip(getattr(expected, what), getattr(found, what), strict=True)
        for number, (theirs, ours) in enumerate(pairs):
            if (theirs is None) != (ours is None) or (theirs is not None and not same(theirs, ours)):
                return f"{what}[{number}]"
    return None


def same(theirs: Tensor, ours: Tensor) -> bool:
    """The same bits, NaN included."""
    return theirs.dtype == ours.dtype and theirs.shape == ours.shape and bits(theirs) == bits(ours)


def bits(tensor: Tensor) -> bytes:
    """The bytes of a tensor's elements."""
    host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return bytes(host.view(torch.uint8).numpy().tobytes())


def keep(chosen: set[int], nodes: int, what: int = 2) -> StorePolicy:
    """Stores what these nodes make."""
    return StorePolicy([what if index in chosen else 0 for index in range(nodes)], others=False)


def of(module: nn.Module) -> list[Tensor]:
    """Parameters and buffers."""
    return [*module.parameters(), *module.buffers()]


@contextmanager
def without_collector() -> Iterator[None]:
    """What goes away inside goes because nobody holds it, not because a collector looked."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


__all__ = ["EVERYTHING", "NOTHING", "Case", "Outcome", "Step", "StorePolicy", "Tape"]
