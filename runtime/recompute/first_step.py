"""Gradients of a model's parameters, and whether a first step of several passes goes on."""

from torch import nn

from runtime.recompute.layer import GRAIN_BYTES

MOST_WAITED = 32
"""For how many passes of the first step at most the decision waits for the optimizer's states."""


class Gradients:
    """What a model's parameters have of gradients."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(model.parameters())

    def written(self) -> list[int | None]:
        """By parameter how often its gradient was written, as far as autograd counts it; None: it has none."""
        return [None if one.grad is None else one.grad._version for one in self._parameters]

    def wanted(self) -> tuple[int, bool]:
        """How many parameters want gradients, and whether some have one."""
        wanted = [one for one in self._parameters if one.requires_grad]
        return len(wanted), any(one.grad is not None for one in wanted)

    def bytes(self) -> int:
        """What they take of the device."""
        gradients = (one.grad for one in self._parameters if one.grad is not None)
        sizes = (getattr(one, "_local_tensor", one).untyped_storage().nbytes() for one in gradients)
        return sum(-(-size // GRAIN_BYTES) * GRAIN_BYTES for size in sizes)


class FirstStep:
    """Whether the step in which optimizers make their states goes on: several passes may add to its gradients.

    `gradient_bytes`: what gradients took at most where a pass of it began. Later steps have as much of them at once,
    and the optimizers' states, which nobody knows before they have been made.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(model.parameters())
        self._first: list[int] = []
        self._last: list[int] = []
        self._waited = self._confirmed_bytes = 0
        self.gradient_bytes = 0

    def begin(self) -> None:
        """Its first pass begins."""
        self._first = self._last = self._versions()

    def end(self) -> None:
        """It is over."""
        self._waited = MOST_WAITED

    def goes_on(self, gradient_bytes: int) -> bool:
        """Asked as a pass begins, with what gradients take now.

        It does while a parameter that has a gradient has not changed since the step began: this pass adds to the
        gradient, or another optimizer is yet to come. Where a parameter has changed in two passes the step is over,
        whatever became of the others.
        """
        self._waited += 1
        now, before, first = self._versions(), self._last, self._first
        self._last = now
        again = any(a != b != c for a, b, c in zip(now, before, first, strict=True))
        pending = any(one.grad is not None and a == c for one, a, c in zip(self._parameters, now, first, strict=True))
        if self._waited > MOST_WAITED or not gradient_bytes or again or not pending:
            return False
        self._confirmed_bytes = self.gradient_bytes
        self.gradient_bytes = max(self.gradient_bytes, gradient_bytes)
        return True

    def confirm(self) -> None:
        """The pass that began last had its backward pass."""
        self._confirmed_bytes = self.gradient_bytes

    def take_back(self) -> None:
        """It was an evaluation, and what gradients took when it began says nothing."""
        self.gradient_bytes = self._confirmed_bytes

    def _versions(self) -> list[int]:
        """By parameter how often it was written."""
        return [one._version for one in self._parameters]
