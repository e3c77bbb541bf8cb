"""Sums of gradients over microbatches and nodes: in fixed point, where no order changes a bit, or in floating point.

A fixed-point number is round(x · 2^40) in 64 bits. Gradients in single precision with |x| < 2^22 / microbatches are
held with an error of 2^-41 each; sums of integers are exact, so that every grouping of microbatches has the same bits.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from runtime.elastic.faults import JobFault

POINT = 40
"""Binary digits behind the point."""
MOST = 2.0**62
"""Sums stay below this, half of what 64 bits hold."""


def to_fixed(value: Tensor, terms: int, what: str) -> Tensor:
    """The numbers as int64 in fixed point, of which `terms` can be added; raises `JobFault` where one is too large."""
    scaled = value.detach().double().mul_(2.0**POINT)
    largest = float(torch.linalg.vector_norm(scaled, torch.inf)) if scaled.numel() else 0.0
    if not largest < MOST / terms:  # not a number is refused too
        raise JobFault(
            f"{what} holds {largest / 2.0**POINT:g}, but sums in fixed point hold less than "
            f"{MOST / terms / 2.0**POINT:g}: train with canonical=False, or keep gradients smaller"
        )
    return scaled.round_().to(torch.int64)


def from_fixed(total: Tensor, terms: int) -> Tensor:
    """The mean of `terms` numbers, in double precision, from their sum in fixed point."""
    return total.double() / (2.0**POINT * terms)


class GradientSum(Protocol):
    """The sum of one layer's gradients over microbatches."""

    def add(self) -> None:
        """Takes the gradients that a microbatch left on the parameters."""

    def flat(self) -> Tensor:
        """The sum as one tensor, which an all-reduce may add to in place."""

    def finish(self) -> None:
        """Leaves the mean on the parameters, for the optimizer."""

    def clear(self) -> None:
        """Back to zero."""


class _Sum:
    """What both sums share: the gradients of all parameters as one flat tensor."""

    def __init__(self, parameters: Sequence[nn.Parameter], microbatches: int, kind: torch.dtype) -> None:
        self._parameters, self._microbatches = parameters, microbatches
        self._total = torch.zeros(sum(one.numel() for one in parameters), dtype=kind)

    def _taken(self) -> Tensor:
        """The gradients of a microbatch, zero where there is none; they leave the parameters."""
        found = [torch.zeros_like(one) if one.grad is None else one.grad for one in self._parameters]
        for one in self._parameters:
            one.grad = None
        return torch.cat([one.flatten() for one in found])

    def _leave(self, mean: Tensor) -> None:
        begin = 0
        for one in self._parameters:
            one.grad = mean[begin : begin + one.numel()].view_as(one).to(one.dtype)
            begin += one.numel()

    def flat(self) -> Tensor:
        """The sum, one number for each of the parameters'."""
        return self._total

    def clear(self) -> None:
        """Back to zero."""
        self._total.zero_()


class CanonicalSum(_Sum):
    """In fixed point: the same bits however microbatches are grouped over nodes. `what` names the layer in errors."""

    def __init__(self, parameters: Sequence[nn.Parameter], microbatches: int, what: str) -> None:
        super().__init__(parameters, microbatches, torch.int64)
        self._what = what

    def add(self) -> None:
        """Takes the gradients that a microbatch left on the parameters."""
        self._total += to_fixed(self._taken(), self._microbatches, self._what)

    def finish(self) -> None:
        """Leaves the mean on the parameters, rounded once."""
        self._leave(from_fixed(self._total, self._microbatches))


class PlainSum(_Sum):
    """In the parameters' own type, as they come: half the bytes, and bits that depend on the grouping."""

    def __init__(self, parameters: Sequence[nn.Parameter], microbatches: int) -> None:
        super().__init__(parameters, microbatches, parameters[0].dtype)

    def add(self) -> None:
        """Takes the gradients that a microbatch left on the parameters."""
        self._total += self._taken()

    def finish(self) -> None:
        """Leaves the mean on the parameters."""
        self._leave(self._total / self._microbatches)
