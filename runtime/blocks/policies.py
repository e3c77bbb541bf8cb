"""Runs a model's blocks under policies: kept, swapped out by storage, or checkpointed."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from runtime.blocks.blocks import find_blocks, states_of
from runtime.blocks.buffers import Buffers
from runtime.blocks.replacing import forward_replaced
from runtime.blocks.saved import device_tensors, without_graph
from runtime.storage.access import ensure_in, may_leave, swap_out
from solvers.ir.layout import Policy


class Moves(Protocol):
    """Moves the storages of tensors away from the device and back."""

    def leaving(self, number: int, tensors: Sequence[torch.Tensor]) -> None:
        """The forward of this call of a block is over; these, which nobody else is to use, will be sent later."""

    def send(self, tensor: torch.Tensor) -> None:
        """To host memory."""

    def begins(self, number: int) -> None:
        """The first gradient of what this call returned is known."""

    def fetch(self, number: int, tensors: Sequence[torch.Tensor]) -> None:
        """What this call saved may come back to the device from now on."""

    def arrived(self, number: int) -> None:
        """The backward of this call begins, and needs what was fetched."""

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Backward reads this now."""


class AtOnce:
    """Moves at once, by hand."""

    def leaving(self, number: int, tensors: Sequence[torch.Tensor]) -> None:
        """Nothing yet."""

    def send(self, tensor: torch.Tensor) -> None:
        """To host memory, but for what is empty or must stay."""
        if may_leave(tensor):
            swap_out(tensor)

    def begins(self, number: int) -> None:
        """Nothing depends on it."""

    def fetch(self, number: int, tensors: Sequence[torch.Tensor]) -> None:
        """Back to the device."""
        ensure_in(list(tensors))

    def arrived(self, number: int) -> None:
        """They are there."""

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Its operator brings it back, if need be."""
        return tensor


@contextmanager
def block_policies(
    model: nn.Module, policies: Sequence[Policy], device: torch.device, interval: int = 1, moves: Moves | None = None
) -> Iterator["Policies"]:
    """Let the model's blocks run under these policies, one for each call of a block in a step.

    What a swapped block saved leaves before the forward of the block `interval` + 1 later, where what runs behind the
    last block counts as one, and comes back when the backward of the block `interval` later begins. A storage that
    another block holds meanwhile stays. `moves` does it, at once by default. Steps are told apart by their number of
    calls, or by `begin_step` of what is yielded.
    """
    run = Policies(model, policies, device, interval, moves or AtOnce())
    with ExitStack() as stack:
        for module in find_blocks(model).values():
            stack.enter_context(forward_replaced(module, run.forward_of(module)))
        yield run


class _Saved:
    """A tensor that a swapped or kept block saved; lives as long as backward needs it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Policies:
    """The state of a step: what each block saved, and which storages are away."""

    def __init__(
        self, model: nn.Module, policies: Sequence[Policy], device: torch.device, interval: int, moves: Moves
    ) -> None:
        self._policies, self._device, self._interval, self._moves = policies, device, interval, moves
        self._planned = policies
        self._states = frozenset(states_of(model))
        self._next = 0
        self._saved: dict[int, list[weakref.ref[_Saved]]] = {}
        self._given: dict[int, set[int]] = {}
        self._returned = set[int]()

    def begin_step(self, *, least: bool = False) -> None:
        """A step begins, whatever became of the one before; with the least in memory, every block is checkpointed."""
        self._next = 0
        self._policies = ["checkpoint"] * len(self._planned) if least else self._planned

    def forward_of(self, module: nn.Module) -> Callable[..., Any]:
        """The forward of a block under the policy of its turn."""
        forward, buffers = module.forward, Buffers(module)

        def run(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(*args, **kwargs)
            number = self._turn()
            self._send(number)
            checkpointed = self._policies[number] == "checkpoint"
            result = self._call(number, buffers.once(forward) if checkpointed else forward, args, kwargs)
            if number + 1 == len(self._policies):
                self._send(number + 1)
            returned = device_tensors(result, self._device)
            self._returned = {tensor.untyped_storage()._cdata for tensor in returned}
            for tensor in returned:
                if tensor.requires_grad:
                    tensor.register_hook(lambda _: self._fetch(number))  # type: ignore[no-untyped-call]
            return result

        return run

    def _turn(self) -> int:
        """The index of this call in its step; a step begins when all blocks of the step before have run."""
        if self._next == len(self._policies):
            self._next = 0
        if self._next == 0:
            self._saved, self._given, self._returned = {}, {}, set()
        self._next += 1
        return self._next - 1

    def _call(self, number: int, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        policy = self._policies[number]
        if policy == "checkpoint":
            given = {one.untyped_storage()._cdata for one in device_tensors((args, kwargs), self._device)}
            result = checkpoint(forward, *args, use_reentrant=False, **kwargs)
            if any(one.requires_grad for one in device_tensors(result, self._device)):  # else it holds nothing
                self._given[number] = given
            return result
        if "swap" in self._policies:  # also of the blocks beside, which may share storages with a swapped one
            kept = self._saved.setdefault(number, [])
            with torch.autograd.graph.saved_tensors_hooks(
                partial(_keep, kept), lambda one: self._moves.read(one.tensor)
            ):
                result = forward(*args, **kwargs)
            if policy == "swap" and number + self._interval < len(self._policies):  # else it is never sent
                self._moves.leaving(number, self._leaving(number, (args, kwargs), result))
            return result
        return forward(*args, **kwargs)

    def _leaving(self, number: int, given: Any, result: Any) -> list[torch.Tensor]:
        """What a swapped block saved and nobody else is to use: not what it returns, nor what another block holds.

        Of what it was given only what has gradients or the block before has returned, the blocks' own stream: masks and
        tables are for other blocks too.
        """
        stays = {one.untyped_storage()._cdata for one in device_tensors(result, self._device)}
        for one in device_tensors(given, self._device):
            if one.grad_fn is None and one.untyped_storage()._cdata not in self._returned:
                stays.add(one.untyped_storage()._cdata)
        for other in range(number):
            stays |= set(self._storages(other)) | self._given.get(other, set())
        return [one for address, one in self._storages(number).items() if address not in stays]

    def _storages(self, number: int) -> dict[int, torch.Tensor]:
        """What a block that has run saved and still needs, by storage."""
        alive = (reference() for reference in self._saved.get(number, ()))
        tensors = (one.tensor for one in alive if one is not None and one.tensor.device == self._device)
        found = {tensor.untyped_storage()._cdata: tensor for tensor in tensors}
        return {address: tensor for address, tensor in found.items() if address not in self._states}

    def _send(self, running: int) -> None:
        """Before this block runs, the block `interval` + 1 before it leaves."""
        number = running - self._interval - 1
        if number < 0 or self._policies[number] != "swap":
            return
        present = set[int]()
        for other in range(running):
            if other != number and (self._policies[other] != "swap" or running - other <= self._interval):
                present |= set(self._storages(other)) | self._given.get(other, set())
        for address, tensor in self._storages(number).items():
            if address not in present:
                self._moves.send(tensor)

    def _fetch(self, running: int) -> None:
        """Before the backward of this block those up to `interval` before it come back."""
        self._moves.begins(running)
        for number in range(max(0, running - self._interval), running + 1):
            if self._policies[number] == "swap":
                self._moves.fetch(number, list(self._storages(number).values()))
        if self._policies[running] == "swap":
            self._moves.arrived(running)


def _keep(kept: list[weakref.ref[_Saved]], tensor: torch.Tensor) -> _Saved:
    saved = _Saved(without_graph(tensor))
    kept.append(weakref.ref(saved))
    return saved
