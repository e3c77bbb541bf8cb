"""What cannot be wrapped, or done to a wrapped model, is refused in a sentence before half of it is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from solvers.ir.errors import InvalidInput


@contextmanager
def refused(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, the model stays where it is and is not copied; asking for the device that it is used on does nothing."""
    named = ("_apply", "__deepcopy__")
    modules = list(model.modules())
    for module in modules:
        module.__dict__.update(_apply=_applied(module, device), __deepcopy__=_never(*_COPIED))
    model.__dict__["to"] = _to(model, device)
    try:
        yield
    finally:
        del model.__dict__["to"]
        for module in modules:
            for name in named:
                module.__dict__.pop(name, None)


def require_own_parameters(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise `InvalidInput` unless every parameter of the optimizer is the model's."""
    known = {id(parameter) for parameter in model.parameters()}
    foreign = sum(id(one) not in known for group in optimizer.param_groups for one in group["params"])
    if foreign:
        raise InvalidInput(
            f"{foreign} of the optimizer's parameters are not the model's: make the optimizer of model.parameters()"
        )


def require_dense(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Refuse sparse gradients, and their optimizer: they would come to the masters as dense ones."""
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise InvalidInput(
            "SparseAdam takes sparse gradients only, but gradients of a wrapped model travel as dense ones: make its "
            "embeddings with sparse=False and train them with Adam or AdamW"
        )
    sparse = [name for name, module in model.named_modules() if getattr(module, "sparse", False) is True]
    if sparse:
        raise InvalidInput(
            f"module {sparse[0]!r} has sparse gradients, but those of a wrapped model travel as dense ones: "
            "make it with sparse=False"
        )


def require_one_by_one(optimizer: torch.optim.Optimizer) -> None:
    """Refuse L-BFGS, which joins all parameters to one vector, here of two devices."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidInput(
            f"{type(optimizer).__name__} joins all parameters to one vector, but a wrapped model's masters may be on "
            "the host and on the device: take another optimizer, or a session of runtime.swap"
        )


def require_plain(model: nn.Module) -> None:
    """Refuse hooks on parameters, which would never run, and blocks that call themselves again with masters."""
    if getattr(model, "is_gradient_checkpointing", False):
        raise InvalidInput(
            f"{type(model).__name__} checkpoints its blocks by itself, but a layout decides that for each: call "
            "model.gradient_checkpointing_disable() first"
        )
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise InvalidInput(
                f"parameter {name!r} has hooks on its gradient, but a wrapped model computes with working parameters, "
                "whose gradients come to it afterwards: remove the hooks"
            )


def require_not_captured(optimizer: torch.optim.Optimizer) -> None:
    """Refuse steps for CUDA graphs, which need every parameter on the device; fused ones do without."""
    if any(group.get("capturable") and not group.get("fused") for group in optimizer.param_groups):
        fused = " (or fused=True)" if isinstance(optimizer, torch.optim.Adam) else ""
        raise InvalidInput(
            f"{type(optimizer).__name__} has capturable=True, which takes parameters on the device only, but a wrapped "
            f"model's masters may be on the host: make the optimizer with capturable=False{fused}"
        )


_COPIED = ("copied", "copy its state_dict() into another model, or unwrap(model) first")


def _never(done: str, remedy: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise InvalidInput(f"a wrapped model cannot be {done}, since its layout says where everything lies: {remedy}")

    return refuse


def _applied(module: nn.Module, device: torch.device) -> Callable[..., nn.Module]:
    """`_apply`, as it comes from a module that holds this one: a move to the device that it is used on is no move."""
    refuse = _never("moved or converted", "unwrap(model) first")

    def apply(convert: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        held = {one.dtype for one in module.parameters() if one.is_floating_point() or one.is_complex()}
        for dtype in held or {torch.get_default_dtype()}:
            there, here = torch.empty(0, dtype=dtype, device=device), torch.empty(0, dtype=dtype)
            same = convert(there)
            if same is not there or convert(here).device != same.device:
                refuse()
        return module

    return apply


def _to(model: nn.Module, device: torch.device) -> Callable[..., nn.Module]:
    """`to`, as trainers call it with the device that they train on."""

    def to(*args: Any, **kwargs: Any) -> nn.Module:
        asked: tuple[torch.device | None, torch.dtype | None] = torch._C._nn._parse_to(*args, **kwargs)[:2]
        place, dtype = asked
        here = place is None or (place.type == device.type and place.index in (None, device.index))
        if here and dtype is None:
            return model
        what = f"device {place}" if dtype is None else f"{dtype}"
        raise InvalidInput(
            f"a wrapped model cannot be moved to {what}: its layout says where everything lies, and it is used on "
            f"{device}: unwrap(model) first"
        )

    return to
