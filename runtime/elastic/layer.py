"""One layer of a job as a node holds it: module, optimizer, the gradients of the running step, and how it travels."""

import hashlib
from io import BytesIO
from typing import Any

import torch
from torch import Tensor

from runtime.elastic.faults import JobFault
from runtime.elastic.job import ElasticJob
from runtime.elastic.sums import CanonicalSum, GradientSum, PlainSum

MAKE, RUN = 0, 1
"""What random numbers are for: a layer's first weights, or a pass."""


def seeded(seed: int, *key: int) -> None:
    """Sets torch's generator by the key alone: who asks, and when, does not matter."""
    text = ",".join(map(str, (seed, *key))).encode()
    torch.manual_seed(int.from_bytes(hashlib.sha256(text).digest()[:7], "big"))


class Layer:
    """Layer `number`: its first weights depend on the job's seed and the number only."""

    def __init__(self, job: ElasticJob, number: int, canonical: bool) -> None:
        seeded(job.seed, MAKE, number)
        self.number, self._job = number, job
        self.module = job.layers[number]()
        self._parameters = list(self.module.parameters())
        self.optimizer = job.optimizer(self._parameters) if self._parameters else None
        self._passes: dict[int, tuple[Tensor, Tensor]] = {}
        self._sum: GradientSum | None = None
        if self._parameters and canonical:
            self._sum = CanonicalSum(self._parameters, job.microbatches, f"a gradient of layer {number}")
        elif self._parameters:
            self._sum = PlainSum(self._parameters, job.microbatches)

    def forward(self, step: int, microbatch: int, given: Tensor) -> Tensor:
        """The layer's output, cut from its graph; `backward` of the same microbatch goes on with it."""
        seeded(self._job.seed, RUN, step, microbatch, self.number)
        # Every layer has a graph of its own, whoever holds its neighbours: the same kernels on the same layouts.
        inputs = given.detach().requires_grad_(given.is_floating_point())
        output = self.module(inputs)
        self._passes[microbatch] = inputs, output
        result: Tensor = output.detach().contiguous()
        return result

    def backward(self, microbatch: int, gradient: Tensor) -> Tensor | None:
        """Adds a microbatch's gradients, given its output's; returns its input's, if that has one."""
        inputs, output = self._passes.pop(microbatch)
        if output.requires_grad:  # not the first layer's where it has no parameters
            torch.autograd.backward(output, gradient)
        if self._sum is not None:
            self._sum.add()
        return None if inputs.grad is None else inputs.grad.contiguous()

    def flat_gradients(self) -> Tensor:
        """The gradients' sum so far, to be added up over nodes in place."""
        return torch.zeros(0) if self._sum is None else self._sum.flat()

    def update(self) -> None:
        """The optimizer's step with the mean gradient, which is then forgotten."""
        if self.optimizer is not None and self._sum is not None:
            self._sum.finish()
            self.optimizer.step()
        self.forget()

    def forget(self) -> None:
        """Drops what the running step left: gradients and graphs."""
        self._passes.clear()
        if self._sum is not None:
            self._sum.clear()
        for one in self._parameters:
            one.grad = None

    def state(self) -> dict[str, Any]:
        """Module and optimizer as plain dictionaries of tensors and numbers."""
        optimizer = None if self.optimizer is None else self.optimizer.state_dict()
        return {"module": self.module.state_dict(), "optimizer": optimizer}

    def load(self, state: dict[str, Any]) -> None:
        """Takes over another node's `state` of this layer."""
        self.module.load_state_dict(state["module"])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        self.forget()

    def static_bytes(self) -> int:
        """Bytes of weights, buffers, gradients and optimizer states, as they are now."""
        gradients = 0 if self._sum is None else self._sum.flat().nbytes
        return sum(value.nbytes for _, value in _flat("", self.state())) + gradients

    def packed(self) -> Tensor:
        """`state` as bytes in one tensor."""
        buffer = BytesIO()
        torch.save(self.state(), buffer)
        return torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8)

    def unpack(self, sent: Tensor) -> None:
        """Takes over what `packed` gave on another node."""
        self.load(torch.load(BytesIO(sent.numpy().tobytes()), weights_only=True))

    def digest(self) -> str:
        """Equal for equal bits of weights, buffers and optimizer states."""
        found = hashlib.sha256()
        for name, value in sorted(_flat("", self.state())):
            found.update(name.encode())
            found.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return found.hexdigest()


def _flat(place: str, value: object) -> list[tuple[str, Tensor]]:
    """The tensors of nested dictionaries by name; numbers count as tensors, lists and text are no state."""
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _flat(f"{place}.{key}", inner)]
    if isinstance(value, Tensor):
        return [(place, value.detach().cpu().reshape(-1))]
    if isinstance(value, int | float):
        return [(place, torch.tensor([float(value)], dtype=torch.float64))]
    return []


def loss_of(job: ElasticJob, output: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """A microbatch's loss, cut from its graph, and the gradient of the last layer's output."""
    given = output.detach().requires_grad_()
    loss = job.loss(given, targets)
    if loss.dim():
        raise JobFault(f"the job's loss has the shape {tuple(loss.shape)}: return the microbatch's mean, a scalar")
    (gradient,) = torch.autograd.grad(loss, given)
    return loss.detach(), gradient.contiguous()
