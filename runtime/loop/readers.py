"""While a session runs, what reads memory past PyTorch's operators brings it back first.

The engine's guard sees operators. The functions below read a storage without one, so they are wrapped while a session
is active: `Tensor.data_ptr` (kernels called by address, Triton's launcher, `__cuda_array_interface__`), the methods of
`UntypedStorage` (`torch.save`, `copy.deepcopy`, `pickle`, `tolist` and FSDP go through these), `Tensor.set_`, DLPack
and CUDA IPC. Nothing else needs it: `numpy()` refuses tensors of an accelerator, `share_memory_()` does not read them.

An address is good as long as its storage stays. Who takes one may call a kernel with it, so the storage is held on the
device until the iteration ends; one that another library or process gets to see (DLPack, IPC) is held for its life.
`torch.save` asks for addresses only to tell storages apart. While it does, it gets the storage's identity instead,
which needs nothing back and stays true while storages come and go; then it copies one storage after the other.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.utils.dlpack

from runtime.device.native import core
from runtime.loop.patches import Function, Patch, Patches

DATA_METHODS = (
    "copy_",
    "fill_",
    "resize_",
    "byteswap",
    "is_pinned",
    "_write_file",
    "_set_from_file",
    "_get_filename",
    "__getitem__",
    "__setitem__",
)
"""Methods of `torch.UntypedStorage` that need the data and give no address away; `cpu`, `clone`, `tolist` call them."""


class _Thread(threading.local):
    saving = 0


_thread = _Thread()


def watch_readers() -> AbstractContextManager[None]:
    """While at least one such context is open, readers past the operators bring back what they read.

    They may then raise `torch.OutOfMemoryError`. The last context to close takes the wrappers away.
    """
    return _readers.standing()


def _elsewhere(storage: torch.UntypedStorage) -> bool:
    return storage.device.type not in ("cpu", "meta")


def _bring_in(storage: torch.UntypedStorage) -> None:
    if _elsewhere(storage):
        core.ensure_in_storage(storage._cdata)


def _give_address(storage: torch.UntypedStorage, for_life: bool) -> None:
    if _elsewhere(storage):
        core.hold_storage(storage._cdata, for_life)
        core.ensure_in_storage(storage._cdata)


def _tensor_address(*, for_life: bool) -> Callable[[Function], Function]:
    def around(read: Function) -> Function:
        def address(self: torch.Tensor, *arguments: Any, **keywords: Any) -> Any:
            if not self.is_cpu and torch._C._has_storage(self):
                _give_address(self.untyped_storage(), for_life)
            return read(self, *arguments, **keywords)

        return address

    return around


def _storage_address(read: Function) -> Function:
    def data_ptr(self: torch.UntypedStorage) -> Any:
        if _thread.saving and _elsewhere(self):
            return self._cdata
        _give_address(self, for_life=False)
        return read(self)

    return data_ptr


def _handing_over(share: Function) -> Function:
    def method(self: torch.UntypedStorage, *arguments: Any, **keywords: Any) -> Any:
        _give_address(self, for_life=True)
        return share(self, *arguments, **keywords)

    return method


def _needing_data(read: Function) -> Function:
    def method(self: torch.UntypedStorage | torch.Tensor, *arguments: Any, **keywords: Any) -> Any:
        for given in (self, *arguments):
            storage = given._untyped_storage if isinstance(given, torch.TypedStorage) else given
            if isinstance(storage, torch.UntypedStorage):
                _bring_in(storage)
        return read(self, *arguments, **keywords)

    return method


def _saving(save: Function) -> Function:
    def saving(*arguments: Any, **keywords: Any) -> Any:
        _thread.saving += 1
        try:
            return save(*arguments, **keywords)
        finally:
            _thread.saving -= 1

    return saving


def _patches() -> Iterator[Patch]:
    yield Patch(torch.Tensor, "data_ptr", _tensor_address(for_life=False))
    yield Patch(torch.Tensor, "set_", _needing_data)
    yield Patch(torch.Tensor, "__dlpack__", _tensor_address(for_life=True))
    yield Patch(torch.utils.dlpack, "to_dlpack", _tensor_address(for_life=True))
    yield Patch(torch, "to_dlpack", _tensor_address(for_life=True))
    yield Patch(torch.UntypedStorage, "data_ptr", _storage_address)
    yield Patch(torch.UntypedStorage, "_share_cuda_", _handing_over)
    for name in DATA_METHODS:
        yield Patch(torch.UntypedStorage, name, _needing_data)
    yield Patch(torch.serialization, "_save", _saving)
    yield Patch(torch.serialization, "_legacy_save", _saving)


_readers = Patches(_patches)
