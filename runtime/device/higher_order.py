"""Operators of higher order, which PyTorch dispatches in Python by the keys of the thread, pass a key of ours by."""

from functools import cache
from typing import Any

import torch
from torch import _ops

__all__ = ["let_pass"]


@cache
def let_pass(key_name: str) -> None:
    """Once a process, before a thread has that key: all such operators, those that are made later too."""
    key: Any = torch._C._parse_dispatch_key(key_name)
    _ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)
    for operator in _ops._higher_order_ops.values():
        operator.fallthrough(key)  # type: ignore[no-untyped-call]
