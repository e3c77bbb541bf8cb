"""The operators by which an update is computed: those that PyTorch takes where the whole model is on the device.

Where nothing is said, PyTorch takes one operator for many tensors on a device ("foreach") and one for each tensor on
the host, and also on a device where a tensor with a gradient is of somebody's own class. NAdam, RAdam and ASGD round
otherwise in the one than in the other; all others do with half-precise masters, and Adamax with a tensor for its rate.
"""

from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer
from torch.utils._foreach_utils import _get_foreach_kernels_supported_devices

PORTIONED = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "Adagrad", "RMSprop", "Rprop", "ASGD")
"""Optimizers of `torch.optim` that treat each parameter by itself, and choose their operators as described here."""
CHOOSING: tuple[type[Optimizer], ...] = tuple(getattr(torch.optim, name) for name in PORTIONED)
ROUNDED = (torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD)
"""Those whose numbers depend on the operators always."""
PRECISE = (torch.float32, torch.float64)


def is_portioned(optimizer: Optimizer) -> bool:
    """Whether the optimizer's step over portions of its parameters gives the numbers of one over all."""
    return type(optimizer).__module__.startswith("torch.optim") and type(optimizer).__name__ in PORTIONED


def is_plain(parameter: Tensor) -> bool:
    """Whether PyTorch takes operators for many tensors for this one."""
    return type(parameter) in (Tensor, torch.nn.Parameter)


def as_on(
    device: torch.device, optimizer: Optimizer, group: dict[str, Any], others: Set[int] = frozenset()
) -> dict[str, Any]:
    """A group's settings with which any portion of it is computed as all of it on the device by default.

    `others` are the ids of parameters that came as objects of somebody's own class: one of them that has a gradient
    decides for its whole group.
    """
    if group.get("foreach", False) is not None or group.get("fused") or group.get("differentiable"):
        return group
    if isinstance(optimizer, torch.optim.Adam) and isinstance(group["lr"], Tensor):  # for each, there, too
        return group
    if device.type not in _get_foreach_kernels_supported_devices():
        return group
    return dict(group, foreach=all(id(one) not in others for one in group["params"] if one.grad is not None))


@contextmanager
def stepping_as_on(device: torch.device, optimizer: Optimizer, others: Set[int]) -> Iterator[None]:
    """Inside, an optimizer that steps over everything at once computes as on the device, if that changes numbers.

    Where it does not, the host is spared the room for many tensors' results at once.
    """
    changed = []
    for group in optimizer.param_groups:
        chosen = as_on(device, optimizer, group, others) if _matters(optimizer, group) else group
        if chosen is not group:
            changed.append(group)
            group["foreach"] = chosen["foreach"]
    try:
        yield
    finally:
        for group in changed:
            group["foreach"] = None


def is_decided_late(optimizer: Optimizer, others: Set[int]) -> bool:
    """Whether only the gradients of a whole backward show which operators, and so which numbers, are PyTorch's."""
    return any(
        group.get("foreach", False) is None
        and _matters(optimizer, group)
        and any(id(one) in others for one in group["params"])
        for group in optimizer.param_groups
    )


def _matters(optimizer: Optimizer, group: dict[str, Any]) -> bool:
    """Whether the operators may change an optimizer's numbers: of PyTorch's own, and of classes derived from them."""
    precise = all(one.dtype in PRECISE for one in group["params"]) and not isinstance(group.get("lr"), Tensor)
    return isinstance(optimizer, CHOOSING) and (isinstance(optimizer, ROUNDED) or not precise)
