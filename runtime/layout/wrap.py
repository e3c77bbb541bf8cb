"""`wrap`: one line, and a model's states are where its layout puts them while an ordinary loop trains it."""

from collections.abc import Callable
from functools import partial
from typing import TypedDict, Unpack

import torch
from torch import nn

from runtime.device import accelerator_of, memory_limit_bytes
from runtime.layout.deciding import Asked
from runtime.layout.refusals import (
    require_dense,
    require_not_captured,
    require_one_by_one,
    require_own_parameters,
    require_plain,
)
from runtime.layout.report import LayoutReport
from runtime.layout.scalers import let_scalers_wait
from runtime.layout.wrapped import Wrapped
from runtime.profile.memory import MemoryProfile
from solvers.ir.amounts import parse_budget, parse_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.layout import LayoutPlan
from solvers.ir.solution import Limits

WRAPPED = "_bayplan_layout"
"""The attribute of a wrapped model that holds what wraps it."""


class WrapOptions(TypedDict, total=False):
    """What can be asked of `wrap`, which says what each means."""

    host_budget: int | str | None
    plan: LayoutPlan | None
    solver: str
    step: Callable[[], object] | None
    overlap_update: bool
    profile: MemoryProfile | None
    chunk_bytes: int | None
    compute_dtype: torch.dtype | None
    limits: Limits
    device: torch.device | str | None


def wrap(
    model: nn.Module, optimizer: torch.optim.Optimizer, *, budget: int | str, **options: Unpack[WrapOptions]
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Train `model` within `budget` bytes of the device; the same two objects are returned, and the loop stays as is.

    Chunks of parameters stay on the device or come from the host when they are used, each block keeps, swaps or
    checkpoints its activations, and the optimizer updates each parameter where it lives: as `solver` decides, or
    `plan`. Between steps the model's parameters are the masters, with their gradients.

    The step is measured first: `profile` says what it takes, or `step` (a forward and a backward of `model`) is run
    once, or, without either, the first forward that trains, its results summed for a loss. `host_budget` is the host
    memory for states, by default the machine's. Updates overlap with backward once a step has shown that nothing
    between backward and the optimizer's step changes gradients or settings, unless `overlap_update` is false.
    `compute_dtype` is the type of the working parameters, bfloat16 say, where masters stay as precise as they are.

    Raises:
        InvalidInput: the model is wrapped already, the optimizer has others' parameters, or a value makes no sense.
        InfeasibleBudget: no layout fits; it tells the least device and host memory. Nothing has been moved then.
    """
    for name in options:
        if name not in WrapOptions.__annotations__:
            raise TypeError(f"wrap() got an unexpected keyword argument {name!r}")
    if WRAPPED in model.__dict__:
        raise InvalidInput("the model is wrapped already: unwrap(model) first")
    require_own_parameters(model, optimizer)
    require_plain(model)
    require_dense(model, optimizer)
    require_one_by_one(optimizer)
    require_not_captured(optimizer)
    place = accelerator_of(options["device"] if "device" in options else _device_of(model))
    gone = partial(model.__dict__.pop, WRAPPED)
    wrapped = Wrapped(model, optimizer, place, _asked(budget, options, place), gone)
    profile, step = options.get("profile"), options.get("step")
    if profile is not None:
        wrapped.lay_out(None, profile)
    elif step is not None:
        wrapped.measure_step(step)
    wrapped.enter()
    let_scalers_wait()
    model.__dict__[WRAPPED] = wrapped
    return model, optimizer


def _asked(budget: int | str, options: WrapOptions, place: torch.device) -> Asked:
    """The options with what they are where nothing is said; raises `InvalidInput` for what is no number of bytes."""
    host = options.get("host_budget")
    device_bytes = parse_budget(budget, memory_limit_bytes(place), "budget") if isinstance(budget, str) else budget
    host_bytes = parse_bytes(host, "host_budget") if isinstance(host, str) else host
    amounts: tuple[tuple[str, object], ...] = (("budget", device_bytes), ("host_budget", host_bytes))
    for name, value in amounts:
        if value is not None and not (isinstance(value, int) and value > 0):
            raise InvalidInput(f"{name} is {value!r}: give whole bytes, or text such as '8GiB'")
    if (dtype := options.get("compute_dtype")) is not None and not dtype.is_floating_point:
        raise InvalidInput(f"compute_dtype is {dtype}: give a type of floating-point numbers, such as torch.bfloat16")
    return Asked(
        device_bytes,
        host_bytes,
        options.get("plan"),
        options.get("solver", "search"),
        options.get("limits", Limits()),
        options.get("chunk_bytes"),
        options.get("overlap_update", True),
        options.get("compute_dtype"),
    )


def unwrap(model: nn.Module) -> nn.Module:
    """The model and its optimizer as they were, with what was trained: all on the host.

    Raises `InvalidInput` where the model is not wrapped.
    """
    wrapped = _wrapped(model)
    del model.__dict__[WRAPPED]
    wrapped.close()
    return model


def report(model: nn.Module) -> LayoutReport:
    """What was decided and what the last step took; raises `InvalidInput` before the first one was laid out."""
    return _wrapped(model).report()


def _wrapped(model: nn.Module) -> Wrapped:
    found = model.__dict__.get(WRAPPED)
    if not isinstance(found, Wrapped):
        raise InvalidInput(f"the model {type(model).__name__} is not wrapped: call wrap(model, optimizer, …) first")
    return found


def _device_of(model: nn.Module) -> torch.device | None:
    devices = {parameter.device for parameter in model.parameters()} - {torch.device("cpu")}
    return next(iter(devices), None)
