"""`wrap`: one line, and a model's states are where its layout puts them while an ordinary loop trains it."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, TypedDict, Unpack

import torch
from torch import nn

from runtime.blocks import blocks as found_blocks
from runtime.blocks.replacing import forward_replaced
from runtime.device import accelerator_of, memory_limit_bytes, reset_peak_memory
from runtime.layout.chunk import Chunk
from runtime.layout.course import Course
from runtime.layout.deciding import Asked, Decided, costs_of, decide, measure
from runtime.layout.first import put_back, train_once
from runtime.layout.gradients import Gradients
from runtime.layout.hooks import Walk, Walked
from runtime.layout.host_lane import host_lane
from runtime.layout.log import Log
from runtime.layout.masters import (
    Build,
    Places,
    held_parameters,
    no_weak_references,
    settle_states,
)
from runtime.layout.refusals import (
    refused,
    require_dense,
    require_not_captured,
    require_one_by_one,
    require_own_parameters,
    require_plain,
    uncopied,
)
from runtime.layout.report import LayoutReport, layout_report
from runtime.layout.scalers import let_scalers_wait
from runtime.layout.store import Store
from runtime.layout.updates import Updates
from runtime.profile.memory import MemoryProfile
from solvers.ir.amounts import parse_budget, parse_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.layout import LayoutPlan
from solvers.ir.solution import Limits
from solvers.timeline.layout_launched import LayoutCosts

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
    wrapped = Wrapped(model, optimizer, place, _asked(budget, options, place))
    profile, step = options.get("profile"), options.get("step")
    if profile is not None:
        wrapped.lay_out(profile)
    elif step is not None:
        wrapped.lay_out(measure(model, step, place, options.get("compute_dtype")))
    else:
        wrapped.wait_for_a_forward()
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


def _wrapped(model: nn.Module) -> "Wrapped":
    found = model.__dict__.get(WRAPPED)
    if not isinstance(found, Wrapped):
        raise InvalidInput(f"the model {type(model).__name__} is not wrapped: call wrap(model, optimizer, …) first")
    return found


class Wrapped:
    """A wrapped model: first waiting for its step to be measured, then laid out."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, asked: Asked) -> None:
        self.model, self.optimizer, self.device, self.asked = model, optimizer, device, asked
        self.decided: Decided | None = None
        self._costs: LayoutCosts | None = None
        self._walk: Walk | None = None
        self._waiting: ExitStack | None = None

    def wait_for_a_forward(self) -> None:
        """Measure the first forward that trains, before it runs."""

        def first(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                raise InvalidInput(
                    "the wrapped model's first forward runs without gradients, so its layout is not decided yet: give "
                    "wrap a step, or train one step first"
                )
            self._stop_waiting()
            try:
                step = partial(train_once, self.model, args, kwargs)
                with put_back((args, kwargs)):
                    profile = measure(self.model, step, self.device, self.asked.compute_dtype)
                self.lay_out(profile)
            except BaseException:
                del self.model.__dict__[WRAPPED]
                raise
            return self.model.forward(*args, **kwargs)

        self._waiting = waiting = ExitStack()
        waiting.enter_context(uncopied([self.model]))
        waiting.enter_context(forward_replaced(self.model, first))

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None

    def lay_out(self, profile: MemoryProfile) -> None:
        """Decide, and move everything to its place."""
        require_plain(self.model)
        decided = self.decided = decide(profile, self.model, self.optimizer, self.device, self.asked)
        self._costs = costs_of(decided, self.model, self.optimizer, self.device)
        chunks = self._build(decided)
        lane = self.lane = host_lane(self.device)
        log = self.log = Log(self.device, decided.problem.device_bytes)
        gradients = Gradients(log, lane)
        course = Course.of(decided.problem, decided.plan)
        self.store = store = Store(chunks, log, decided.plan.buffers, course, gradients)
        places = Places(chunks, store.touch)
        self.updates = Updates(self.optimizer, chunks, lane, gradients.settle, log, overlap=self.asked.overlap_update)
        gradients.on_left, gradients.on_outside = self.updates.left, self.updates.outside
        self._walk = Walk(self._walked(decided, chunks), store, places, self.updates)
        self._refused = refused(self.model, self.device)
        self._refused.__enter__()
        self._guard = self.model.register_state_dict_pre_hook(lambda *_: self.updates.require_unchanged())  # type: ignore[no-untyped-call]
        reset_peak_memory(self.device)  # what measuring and moving took is no step's

    def _build(self, decided: Decided) -> list[Chunk]:
        held = held_parameters(self.model)
        persistent, dtype = set(decided.plan.persistent), self.asked.compute_dtype
        build = Build(decided.problem.chunk_bytes, self.device, dtype)
        with no_weak_references(self.model):
            chunks = [
                build.chunk(number, [held[name] for name in names], persistent=number in persistent)
                for number, names in enumerate(decided.members)
            ]
            if decided.unused:
                unused = [held[name] for name in decided.unused]
                chunks.append(Build(0, self.device, dtype).chunk(len(chunks), unused, persistent=True))
        settle_states(self.optimizer)
        for module in self.model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = buffer.to(self.device)
        return chunks

    def _walked(self, decided: Decided, chunks: list[Chunk]) -> Walked:
        blocks = found_blocks.find_blocks(self.model)
        of: Mapping[int, int] = {id(slot.master): chunk.number for chunk in chunks for slot in chunk.slots}
        return Walked(
            model=self.model,
            calls=tuple(blocks[block.name] for block in decided.profile.blocks),
            policies=decided.plan.policies[1:-1],
            interval=decided.problem.interval,
            chunks_of={block: tuple(sorted({of[id(one)] for one in block.parameters()})) for block in blocks.values()},
        )

    def report(self) -> LayoutReport:
        """What was decided, and what the last step took."""
        if self.decided is None:
            raise InvalidInput("the layout is not decided before the first step: train one, or give wrap a step")
        return layout_report(self.decided, self._costs, self.store, self.updates, self.log)

    def close(self) -> None:
        """Everything to the host, where there is room."""
        self._stop_waiting()
        if self._walk is None:
            return
        self._refused.__exit__(None, None, None)
        self._guard.remove()
        self._walk.close()
        self.store.gradients.begin()  # a backward that failed may still wait
        self.store.release()
        self.store.gradients.settle()
        self.updates.close()
        self.lane.close()
        self.model.to("cpu")
        for chunk in self.store.chunks:
            chunk.give_back()
        settle_states(self.optimizer)


def _device_of(model: nn.Module) -> torch.device | None:
    devices = {parameter.device for parameter in model.parameters()} - {torch.device("cpu")}
    return next(iter(devices), None)
