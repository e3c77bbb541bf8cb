"""A tape below autograd: the operators of a region, which of their results stay, and how the others come back.

    with record(device, StorePolicy([0, 2, 2, 0])) as tape:
        hidden = block(hidden)
    ...
    loss.backward()                    # what was discarded is run again when autograd asks for it
    tape.replay([3, 4])                # or earlier, where somebody says so: beside a collective

The recorder is C++ (`csrc/recompute`), its rules are told there. Here is what Python has to add: tensor subclasses such
as DTensor, which autograd saves whole, and the list of operators that write what their schemas do not declare.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from runtime.device.higher_order import let_pass
from runtime.device.native import core
from runtime.device.undeclared_writes import UNDECLARED_WRITES, UNDECLARED_WRITES_OF_OTHER_DEVICES

Tape = core.Tape
Node = core.TapeNode


@dataclass(frozen=True)
class StorePolicy:
    """What of an operator's results stays: by index, and whether it is all of them for `others` beyond.

    0: nothing. 1: what autograd saved, such as dropout's mask. 2: all that something reads again, such as also
    dropout's result, for a sum that is run again. 3: of that what autograd did not save. `names` are the operators that
    the policy was made for; from the first that is another one on, or comes behind them, nothing is
    (`Tape.diverged_at`). Nor is what would make the results that can run again more than `most_bytes` together
    (`Tape.asked_bytes`: all that would be stored).
    """

    store: Sequence[int] = ()
    others: bool = True
    names: Sequence[str] = ()
    most_bytes: int | None = None

    @cached_property
    def native(self) -> core.TapePolicy:
        """The recorder's own: a region is short, and making it takes as long as recording some operators."""
        return core.TapePolicy(self.store, self.others, self.names, self.most_bytes)

    def __reduce__(self) -> tuple[type["StorePolicy"], tuple[object, ...]]:
        """Other processes make their own."""
        return StorePolicy, (self.store, self.others, self.names, self.most_bytes)


EVERYTHING = StorePolicy()
NOTHING = StorePolicy(others=False)


Watch = Callable[[tuple[int, int]], None]
"""Told each time that autograd asks for what an operator made: the node, and its place in `Node.made`."""


def record(
    device: torch.device,
    policy: StorePolicy = EVERYTHING,
    *,
    timed: bool = False,
    watch: Watch | None = None,
    memory: core.MemoryLog | None = None,
) -> AbstractContextManager[Tape]:
    """Record what runs inside on a device, and store what the policy says of what autograd saves.

    The tape lives as long as something that was saved inside. `timed` measures each operator on the device's stream
    (`Node.time_us`); `memory` is told what the device's memory does, as long as the tape lives. Regions do not nest;
    hooks that the program sets inside on saved tensors come before the tape's.

    What autograd saved and somebody has changed in place since is the error that it is without a tape. What the region
    only read must not change either before the backward pass, where a discarded result depends on it: refused by name
    where PyTorch counts the change, unnoticed where the program hides it (`.data`, `.numpy()`).
    """
    prepare_recorder()
    tape = Tape(device, policy.native, timed)
    if memory is not None:
        tape.tell(memory)
    return _Region(tape, _UNPACK if watch is None else partial(_watched_unpack, watch))


def reads_of(nodes: Sequence[Node]) -> dict[tuple[int, int], list[int]]:
    """By result (its node and its place in `Node.made`) the nodes that read it, where any does.

    A collective reads until what it leaves is read, or to the region's end: only then it has ended for sure.
    """
    first: dict[int, int] = {}
    for index, node in enumerate(nodes):
        for maker, _ in node.reads:
            first.setdefault(maker, index)
    ends = {index: first.get(index, len(nodes) - 1) for index, node in enumerate(nodes) if node.communicates}
    found: dict[tuple[int, int], list[int]] = {}
    for index, node in enumerate(nodes):
        for read in node.reads:
            found.setdefault(read, []).extend({index, ends.get(index, index)})
    return found


class _Region:
    """What `with record(...)` enters: a class, because a short region pays for a generator as for two operators."""

    __slots__ = ("_tape", "_unpack")

    def __init__(self, tape: Tape, unpack: Callable[[Any], Any]) -> None:
        self._tape, self._unpack = tape, unpack

    def __enter__(self) -> Tape:
        core.start_recording(self._tape, self._unpack)
        return self._tape

    def __exit__(self, *error: object) -> None:
        core.stop_recording()


@cache
def prepare_recorder() -> None:
    """Once a process, what the recorder has to know of operators before it looks at the first one."""
    let_pass("TESTING_ONLY_GenericMode")
    for name, write in {**UNDECLARED_WRITES, **UNDECLARED_WRITES_OF_OTHER_DEVICES}.items():
        core.set_secret_writes(name, list(write.arguments), write.condition)


@dataclass(frozen=True)
class _Wrapped:
    """A saved tensor subclass: what holds the place of each tensor inside, and how to make it again."""

    kind: type[Any]
    inner: dict[str, Any]
    context: Any
    size: torch.Size
    stride: tuple[int, ...]

    def unpack(self, unpack: Callable[[Any], Any]) -> torch.Tensor:
        inner = {name: unpack(one) for name, one in self.inner.items()}
        tensor: torch.Tensor = self.kind.__tensor_unflatten__(inner, self.context, self.size, self.stride)
        return tensor


def _pack_wrapped(tensor: Any) -> Any:
    if not is_traceable_wrapper_subclass(tensor):
        return tensor.detach()
    names, context = tensor.__tensor_flatten__()
    parts = {name: getattr(tensor, name) for name in names}  # a DTensor's mesh is one of them
    inner = {name: _PACK(part) if isinstance(part, torch.Tensor) else part for name, part in parts.items()}
    return _Wrapped(type(tensor), inner, context, torch.Size(tensor.size()), tensor.stride())


def _unpack_wrapped(packed: Any) -> Any:
    return packed.unpack(_UNPACK) if isinstance(packed, _Wrapped) else packed


def _watched_unpack(watch: Watch, packed: Any) -> Any:
    if isinstance(packed, _Wrapped):
        return packed.unpack(partial(_watched_unpack, watch))
    if isinstance(packed, core.PackedTensor) and packed.where is not None:
        watch(packed.where)
    return _UNPACK(packed)


_PACK, _UNPACK = core.pack_hook(_pack_wrapped), core.unpack_hook(_unpack_wrapped)
core.set_python_hooks(_PACK, _UNPACK)
