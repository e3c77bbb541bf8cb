"""What cannot be wrapped, or done to a wrapped model, is refused in a sentence before half of it is done."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from runtime.layout.chunk import Chunk, Slot
from solvers.ir.errors import InvalidInput


@contextmanager
def refused(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, the model stays where it is and is not copied; asking for the device that it is used on does nothing."""
    modules = list(model.modules())
    for module in modules:
        module.__dict__["_apply"] = _applied(module, device)
    model.__dict__["to"] = _to(model, device)
    try:
        with uncopied(modules):
            yield
    finally:
        del model.__dict__["to"]
        for module in modules:
            module.__dict__.pop("_apply", None)


@contextmanager
def uncopied(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, none of these is copied or pickled, with the forward that has taken its own's place."""
    never = {name: _never(*_COPIED) for name in ("__deepcopy__", "__reduce_ex__")}
    for module in modules:
        module.__dict__.update(never)
    try:
        yield
    finally:
        for module in modules:
            for name in never:
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
        if isinstance(parameter, nn.UninitializedParameter):
            raise InvalidInput(
                f"parameter {name!r} has no shape yet, as those of lazy modules before their first forward: run the "
                "model once on the host before wrap"
            )
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise InvalidInput(
                f"parameter {name!r} has hooks on its gradient, but a wrapped model computes with working parameters, "
                "whose gradients come to it afterwards: remove the hooks"
            )


def require_no_transform() -> None:
    """Refuse forwards inside `torch.func.vmap` and its like, whose tensors have no bytes of their own that may move."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise InvalidInput(
            "a wrapped model is trained inside a transform of torch.func, whose tensors cannot leave the device: "
            "unwrap(model) first, or give the model whole batches"
        )


def require_as_laid_out(chunks: Iterable[Chunk]) -> None:
    """Raise `InvalidInput` where a parameter is frozen, or not any more, replaced by another one, or has hooks now."""
    for slot in (slot for chunk in chunks for slot in chunk.slots):
        if slot.master.requires_grad != slot.trainable:
            done = "frozen" if slot.trainable else "unfrozen"
        elif any(module._parameters.get(key) is not slot.master for module, key in slot.places):
            done = "replaced"
        elif _has_hooks(slot):
            done = "given hooks on its gradient, which would not run,"
        else:
            continue
        raise InvalidInput(
            f"parameter {slot.name!r} was {done} after the layout was decided, and would train as before: "
            "unwrap(model), change it, and wrap again"
        )


def _has_hooks(slot: Slot) -> bool:
    """Whether somebody has put hooks on a master; a working parameter has one of ours."""
    ours = int(slot.trainable and slot.working is slot.master)
    return bool(slot.master._backward_hooks) or len(slot.master._post_accumulate_grad_hooks or ()) > ours


def require_not_captured(optimizer: torch.optim.Optimizer) -> None:
    """Refuse steps for CUDA graphs, which need every parameter on the device; fused ones do without."""
    if any(group.get("capturable") and not group.get("fused") for group in optimizer.param_groups):
        fused = " (or fused=True)" if isinstance(optimizer, torch.optim.Adam) else ""
        raise InvalidInput(
            f"{type(optimizer).__name__} has capturable=True, which takes parameters on the device only, but a wrapped "
            f"model's masters may be on the host: make the optimizer with capturable=False{fused}"
        )


_COPIED = ("copied or pickled", "copy its state_dict() into another model, or unwrap(model) first")


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
