"""Which storages a block saves for its backward, and which it is given: seen while it runs and is recomputed."""

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

GRANULE_BYTES = 512
"""Allocators hand out device memory in such pieces: CUDA's, and the simulated one after it."""


def device_bytes(tensor: torch.Tensor) -> int:
    """What a tensor's storage takes on a device."""
    return -(-tensor.untyped_storage().nbytes() // GRANULE_BYTES) * GRANULE_BYTES


def device_tensors(values: object, device: torch.device) -> list[torch.Tensor]:
    """All tensors on the device in nested arguments or results."""
    return [
        leaf
        for leaf in tree_leaves(values)
        if isinstance(leaf, torch.Tensor) and leaf.device == device and leaf.layout is torch.strided
    ]


class Boundaries:
    """Numbers storages that blocks share with others; weak references keep addresses from being reused."""

    def __init__(self) -> None:
        self.bytes: list[int] = []
        self.users: list[int] = []
        self._numbers: dict[int, int] = {}
        self._references: list[StorageWeakRef] = []

    def add(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage."""
        return self.add_storage(StorageWeakRef(tensor.untyped_storage()), device_bytes(tensor))  # type: ignore[no-untyped-call]

    def add_storage(self, storage: StorageWeakRef, size: int) -> int:
        """The number of a storage of this size."""
        number = self._numbers.setdefault(storage.cdata, len(self.bytes))
        if number == len(self.bytes):
            self.bytes.append(size)
            self.users.append(0)
            self._references.append(storage)
        return number

    def used(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """These storages, each once, are used by one more block."""
        unique = tuple(dict.fromkeys(numbers))
        for number in unique:
            self.users[number] += 1
        return unique

    def number(self, address: int) -> int | None:
        """The number of the storage at this address, if it has one."""
        return self._numbers.get(address)

    def alive(self, number: int) -> bool:
        """Whether the storage is still held."""
        return not self._references[number].expired()  # type: ignore[no-untyped-call]


class SavedStorages:
    """What one call of a block saves for its backward, seen in its forward as it packs; states are left out."""

    def __init__(self, boundaries: Boundaries, states: Container[int], device: torch.device) -> None:
        self._boundaries, self._states, self._device = boundaries, states, device
        self._packed: dict[int, tuple[StorageWeakRef, int]] = {}

    def pack(self, tensor: torch.Tensor) -> None:
        """A tensor that forward saves."""
        storage = tensor.untyped_storage()
        if tensor.device == self._device and storage._cdata not in self._states:
            self._packed[storage._cdata] = StorageWeakRef(storage), device_bytes(tensor)  # type: ignore[no-untyped-call]

    def number_outliving(self) -> tuple[int, ...]:
        """Number the saved storages that outlive the forward: the program or another block holds them, too.

        Such are copies of weights that autocast caches until its context ends, and tables that the program keeps.
        """
        there = ((one, size) for one, size in self._packed.values() if not one.expired())  # type: ignore[no-untyped-call]
        return tuple(self._boundaries.add_storage(one, size) for one, size in there)

    def split(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The numbers of the storages that it shares with others, and the bytes of all other storages, one by one."""
        numbers = [self._boundaries.number(address) for address in self._packed]
        pairs = zip(self._packed.values(), numbers, strict=True)
        inside = tuple(size for (_, size), number in pairs if number is None)
        return tuple(number for number in numbers if number is not None), inside


@contextmanager
def watching_saves(look: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Show `look` every tensor saved inside, and let the hooks that are there already do what they do."""
    outer_pack, unpack = hooks_in_force()

    def pack(tensor: torch.Tensor) -> object:
        look(tensor)
        return outer_pack(tensor)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


def hooks_in_force() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The pack and unpack hooks that saved tensors go through now; PyTorch asks only the innermost ones."""
    top: Any = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return top or (without_graph, _same)


def without_graph(tensor: torch.Tensor) -> torch.Tensor:
    """What to keep of a saved tensor: its bytes.

    What an operator returns belongs to the graph that saves it: kept as it is, a graph that no backward consumes holds
    itself for ever, and its activations with it. PyTorch gives what it unpacks its place in the graph again. `detach()`
    would be an operator: a step that is recorded with these hooks would not be the one executed without.
    """
    return tensor if tensor.grad_fn is None else tensor.data


def _same(value: Any) -> Any:
    return value
