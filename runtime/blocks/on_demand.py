"""On-demand tensor management: states and activations are on the device only while something uses them (§3.2).

A parameter leaves by storage (`runtime.storage.access`), so any operator that reads it finds it. What is away while the
trace runs counts as if it were there, so that segments are those of a plain step.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from runtime.blocks.blocks import states_of
from runtime.blocks.saved import device_bytes
from runtime.storage.access import ensure_in, is_swapped_out, may_leave, release_host_memory, swap_out


class Resident:
    """States stay on the device, as in a plain step: nothing is ever away."""

    def away_bytes(self) -> int:
        """Bytes of a plain step that are off the device now."""
        return 0

    def begin(self) -> None:
        """A step begins."""

    def fetch(self, module: nn.Module) -> None:
        """A module runs, in a block or not: what it holds itself is used."""

    def enter(self, block: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        """A block begins to run."""

    def leave(self, block: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        """A block has ended; its inputs are not needed before its backward."""

    def gradient(self, parameter: torch.Tensor) -> None:
        """A parameter's gradient is complete."""


@dataclass(frozen=True)
class _Sent:
    """An input of blocks on the host, by the tensors that these hold.

    An operator outside the blocks may have brought it back, and a frozen block forgets it.
    """

    bytes: int
    tensors: list[weakref.ref[torch.Tensor]]

    @property
    def away(self) -> bool:
        tensors = (reference() for reference in self.tensors)
        return any(tensor is not None and is_swapped_out(tensor) for tensor in tensors)


class OnDemand(Resident):
    """A model's states are brought in block by block, gradients dropped, and inputs of blocks sent to the host.

    What is in no block comes back by itself when it is used, and leaves when the next block begins or ends.
    """

    def __init__(self, model: nn.Module, blocks: Sequence[nn.Module]) -> None:
        self._states = {id(block): _movable(block) for block in blocks}
        inside = {address for states in self._states.values() for address in states}
        self._outside = [tensor for address, tensor in _movable(model).items() if address not in inside]
        self._free = {tensor.untyped_storage()._cdata for tensor in self._outside}
        unique = {address: tensor for states in self._states.values() for address, tensor in states.items()}
        self._inside_bytes = sum(map(device_bytes, unique.values()))
        self._present_bytes = 0
        self._dropped: dict[int, int] = {}
        self._sent: dict[int, _Sent] = {}

    def begin(self) -> None:
        """Everything is away, and no gradient was dropped yet."""
        self._dropped, self._sent = {}, {}
        self._sweep()

    def away_bytes(self) -> int:
        """States that are out, gradients that were dropped, inputs of blocks on the host."""
        outside = sum(device_bytes(tensor) for tensor in self._outside if is_swapped_out(tensor))
        inside = self._inside_bytes - self._present_bytes
        self._sent = {address: sent for address, sent in self._sent.items() if sent.away}
        return outside + inside + sum(self._dropped.values()) + sum(sent.bytes for sent in self._sent.values())

    def fetch(self, module: nn.Module) -> None:
        """Bring in what of it is in no block."""
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        ensure_in([one for one in own if one.untyped_storage()._cdata in self._free])

    def enter(self, block: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        """Send away what is in no block, and bring in this block's states and inputs."""
        self._sweep()
        states = self._states[id(block)].values()
        ensure_in([*states, *inputs])
        self._present_bytes = sum(map(device_bytes, states))
        for tensor in inputs:
            self._sent.pop(tensor.untyped_storage()._cdata, None)

    def leave(self, block: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        """Send the block's states and inputs away again: a block that returns its input uses none in backward."""
        for tensor in self._states[id(block)].values():
            if not is_swapped_out(tensor):
                swap_out(tensor)
        self._present_bytes = 0
        for tensor in inputs:
            address = tensor.untyped_storage()._cdata
            if address not in self._sent:
                if not may_leave(tensor):
                    continue
                swap_out(tensor)
                self._sent[address] = _Sent(device_bytes(tensor), [])
            self._sent[address].tensors.append(weakref.ref(tensor))
        self._sweep()

    def gradient(self, parameter: torch.Tensor) -> None:
        """Drop the gradient."""
        if parameter.grad is not None:
            self._dropped[parameter.untyped_storage()._cdata] = device_bytes(parameter.grad)
            parameter.grad = None

    def _sweep(self) -> None:
        for tensor in self._outside:
            if not is_swapped_out(tensor):
                swap_out(tensor)


def _movable(module: nn.Module) -> dict[int, torch.Tensor]:
    return {address: tensor for address, tensor in states_of(module).items() if tensor.untyped_storage().nbytes()}


@contextmanager
def states_on_host(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Let a model live on the device with all its states in host memory; one module's are on the device at most.

    A model that is elsewhere before is there again afterwards; idle page-locked memory goes back to the system.
    """
    place = next(model.parameters()).device
    _move(model, device, out=True)
    try:
        yield
    finally:
        if place == device:
            ensure_in(model)
        else:
            _move(model, place, out=False)
        release_host_memory()


def _move(model: nn.Module, device: torch.device, *, out: bool) -> None:
    for module in model.modules():
        module._apply(lambda tensor: tensor.to(device), recurse=False)  # type: ignore[no-untyped-call]
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        for tensor in own if out else ():
            if tensor.untyped_storage().nbytes() and not is_swapped_out(tensor):
                swap_out(tensor)
