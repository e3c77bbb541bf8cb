"""Finds the operators that write an argument which their schema does not say they write."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Found = dict[str, set[str]]
"""Names of written arguments, by operator with its namespace and without its overload."""


@contextmanager
def watched_writes(found: Found) -> Iterator[None]:
    """Looks at the arguments of every operator inside, before and after it."""
    with _FunctionWatch(found), _OperatorWatch(found):
        yield


class _OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees what reaches a device's kernels."""

    def __init__(self, found: Found) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = _Arguments(func._schema, args, kwargs or {})
        result = func(*args, **kwargs or {})
        _note(self._found, func._schema.name, before.written())
        return result


class _FunctionWatch(TorchFunctionMode):
    """Sees the functions that programs call, which may be made of several operators."""

    def __init__(self, found: Found) -> None:
        super().__init__()
        self._found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = _schema_of(func, args, kwargs or {})
        before = None if schema is None else _Arguments(schema, args, kwargs or {})
        result = func(*args, **kwargs or {})
        if before is not None:
            _note(self._found, before.schema.name, before.written())
        return result


def _note(found: Found, name: str, arguments: set[str]) -> None:
    if arguments:
        found.setdefault(name, set()).update(arguments)


def _schema_of(func: Any, args: Any, kwargs: Any) -> Any:
    """The schema of the operator of a function's name that takes as many arguments and all of the named ones."""
    packet = getattr(torch.ops.aten, getattr(func, "__name__", ""), None)
    if packet is None or not hasattr(packet, "overloads"):
        return None
    for overload in packet.overloads():
        schema = getattr(packet, overload)._schema
        if len(args) <= len(schema.arguments) and kwargs.keys() <= {each.name for each in schema.arguments}:
            return schema
    return None


class _Arguments:
    """The bytes of the tensors that an operator is not said to write."""

    def __init__(self, schema: Any, args: Any, kwargs: Any) -> None:
        self.schema = schema
        named = {declared.name: value for declared, value in zip(schema.arguments, args, strict=False)} | kwargs
        declared = {each.name for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write}
        allowed = {tensor.untyped_storage()._cdata for name in declared for tensor in _tensors(named.get(name))}
        self._before = [
            (name, tensor, _bytes(tensor))
            for name, value in named.items()
            for tensor in _tensors(value)
            if tensor.untyped_storage()._cdata not in allowed
        ]

    def written(self) -> set[str]:
        """The arguments whose bytes are others now."""
        return {name for name, tensor, before in self._before if not torch.equal(_bytes(tensor), before)}


def _tensors(value: Any) -> list[Tensor]:
    return [
        leaf
        for leaf in tree_leaves(value)
        if isinstance(leaf, Tensor) and leaf.layout == torch.strided and leaf.device.type == "cpu"
    ]


def _bytes(tensor: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).clone()
