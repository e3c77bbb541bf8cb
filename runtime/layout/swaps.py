"""Activations of swapped blocks on the lanes that chunks travel on: out behind forward, in before backward.

Only what is born inside a block leaves so, for nobody else knows it. What a block is given or returns, the model may
use again: it moves by the swap engine, at once, and whatever uses it brings it back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from runtime.blocks.policies import AtOnce
from runtime.layout.log import Log


@dataclass
class _Away:
    """A storage on its way: its bytes (None: they are given back), their copy, and the end of the last copying."""

    number: int
    storage: StorageWeakRef
    flat: Tensor | None
    host: Tensor
    over: torch.Event


class Swaps(AtOnce):
    """Moves of storages, by number of their block's call in the step."""

    def __init__(self, log: Log, into: torch.Stream, out: torch.Stream) -> None:
        self._log, self._into, self._out = log, into, out
        self._away: dict[int, _Away] = {}
        self._idle: dict[int, list[Tensor]] = {}

    def begin_step(self) -> None:
        """What an earlier step left behind is given back, but for what its backward may still ask for."""
        for address, one in list(self._away.items()):
            if one.flat is not None or one.storage.expired():  # type: ignore[no-untyped-call]
                self._settled(address, one)

    def leaving(self, number: int, tensors: Sequence[Tensor]) -> None:
        """A block's forward is launched: copy these behind it."""
        if not tensors:
            return
        self._out.wait_event(self._compute().record_event())
        with torch.no_grad(), self._log.on(self._out, "out", "swap-out", number + 1):
            for tensor in tensors:
                storage, flat = tensor.untyped_storage(), _flat(tensor)
                host = self._room(flat.nbytes)
                with self._out:
                    host.copy_(flat, non_blocking=True)
                weak = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._away[storage._cdata] = _Away(number, weak, flat, host, self._out.record_event())

    def send(self, tensor: Tensor) -> None:
        """Give the bytes back: behind their copy, or at once by the engine."""
        one = self._away.get(tensor.untyped_storage()._cdata)
        if one is None:
            super().send(tensor)
        elif one.flat is not None:
            self._compute().wait_event(one.over)
            one.flat.untyped_storage().resize_(0)
            one.flat = None

    def fetch(self, tensors: Sequence[Tensor]) -> None:
        """Bring them back, beside what runs meanwhile."""
        found = [self._away.get(tensor.untyped_storage()._cdata) for tensor in tensors]
        super().fetch([tensor for tensor, one in zip(tensors, found, strict=True) if one is None])
        pairs = zip(tensors, found, strict=True)
        mine = [(tensor, one) for tensor, one in pairs if one is not None and one.flat is None]
        if not mine:
            return
        for tensor, one in mine:
            tensor.untyped_storage().resize_(one.host.nbytes)
            one.flat = _flat(tensor)
        self._into.wait_event(self._compute().record_event())
        with torch.no_grad(), self._log.on(self._into, "in", "swap-in", mine[0][1].number + 1):
            for _, one in mine:
                assert one.flat is not None
                with self._into:
                    one.flat.copy_(one.host, non_blocking=True)
                one.over = self._into.record_event()

    def arrived(self, number: int) -> None:
        """A block's backward begins: what it saved is there for what is launched from now on."""
        for address, one in list(self._away.items()):
            if one.number == number and one.flat is not None:
                self._settled(address, one)

    def read(self, tensor: Tensor) -> Tensor:
        """Backward reads this: of another step than the last one it was not fetched yet."""
        address = tensor.untyped_storage()._cdata
        one = self._away.get(address)
        if one is not None:
            self.fetch([tensor])
            self._settled(address, one)
        return tensor

    def _settled(self, address: int, one: _Away) -> None:
        """Compute comes after the last copy, so that bytes and host memory may be used again."""
        self._compute().wait_event(one.over)
        self._idle.setdefault(one.host.nbytes, []).append(one.host)
        del self._away[address]

    def _room(self, size: int) -> Tensor:
        idle = self._idle.get(size)
        return idle.pop() if idle else torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def _compute(self) -> torch.Stream:
        return torch.accelerator.current_stream(self._log.device)


def _flat(tensor: Tensor) -> Tensor:
    """The bytes of a tensor's storage."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())
