"""Copies of a sample's tensors on a device: the same bytes, strides, offsets and shared storages."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map


class Copies:
    """One sample's arguments on one device. Tensors that share a storage share one there too."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._storages: dict[int, tuple[torch.UntypedStorage, Tensor]] = {}
        self._tensors: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, value: Any) -> Any:
        """The value with every tensor, generator and device in it replaced by the device's."""
        return tree_map(self._leaf, value)

    def tensors(self) -> list[Tensor]:
        """The copies, in the order in which they were asked for."""
        return [copy for _, copy in self._tensors.values()]

    def storages(self) -> Iterator[Tensor]:
        """The bytes of every copied storage."""
        for storage, _ in self._storages.values():
            yield torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)

    def place_of(self, tensor: Tensor) -> int | None:
        """The number of the copied storage that a tensor lies in, if it does."""
        address = tensor.untyped_storage()._cdata
        places = [storage._cdata for storage, _ in self._storages.values()]
        return places.index(address) if address in places else None

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, torch.device):
            return self.device
        return self.device.type if value == "cpu" else value

    def _tensor(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = (tensor, self._copied(tensor))
        return self._tensors[id(tensor)][1]

    def _copied(self, tensor: Tensor) -> Tensor:
        source = tensor.detach()
        if source.layout != torch.strided:
            return source.clone().to(self.device).requires_grad_(tensor.requires_grad)
        copy = torch.empty(0, dtype=source.dtype, device=self.device)
        copy.set_(self._storage(source), source.storage_offset(), source.shape, source.stride())
        if source.is_conj():
            torch._C._set_conj(copy, True)
        if source.is_neg():
            torch._C._set_neg(copy, True)
        return copy.requires_grad_(tensor.requires_grad)

    def _storage(self, tensor: Tensor) -> torch.UntypedStorage:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            content = torch.empty(0, dtype=torch.uint8).set_(storage).clone().to(self.device)
            self._storages[storage._cdata] = (content.untyped_storage(), tensor)
        return self._storages[storage._cdata][0]
