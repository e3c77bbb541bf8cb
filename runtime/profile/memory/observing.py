"""Hooks that cut a training step into segments while every block of the model is checkpointed.

One file: whatever cuts a segment also says where the next one is and whom its work is charged to.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from runtime.blocks.blocks import states_of
from runtime.blocks.on_demand import Resident
from runtime.blocks.replacing import Alias, autocast_clearing, forward_replaced
from runtime.blocks.saved import Boundaries, SavedStorages, device_bytes, device_tensors, watching_saves
from runtime.profile.memory.charges import Charges
from runtime.profile.memory.lives import Lives
from runtime.profile.memory.segments import Place, Tape
from solvers.ir.errors import InvalidInput


@dataclass
class Call:
    """One observed call of a block in the step."""

    name: str
    inputs: tuple[int, ...]
    saved: SavedStorages
    needs_gradient: bool = False
    last_save: int = 0
    recompute_end: int = 0
    events: dict[str, torch.Event] = field(default_factory=dict)


class Observer:
    """Watches one step of a model; `calls` and `tape` say afterwards what happened."""

    def __init__(self, model: nn.Module, blocks: dict[str, nn.Module], device: torch.device, demand: Resident) -> None:
        self.calls: list[Call] = []
        self.boundaries = Boundaries()
        self.tape = Tape(device, demand.away_bytes)
        self.lives = Lives(self.boundaries, self._cut)
        self.events: dict[str, torch.Event] = {}
        self.charges = Charges(device)
        self.forward_start = 0
        self.cached: frozenset[int] | None = None
        self.cache_end: int | None = None
        self.old_gradient_bytes = 0
        self._demand = demand
        self._model, self._blocks, self.device = model, blocks, device
        self._states = frozenset(states_of(model))
        self._grown: set[int] = set()
        self._names = {id(one): name for name, one in model.named_parameters()}
        unique = {one.untyped_storage()._cdata: device_bytes(one) for one in model.parameters()}
        self.parameter_bytes = sum(unique.values())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the step that runs inside; hooks and wrappers are gone afterwards."""
        with ExitStack() as stack:
            for name, module in self._blocks.items():
                stack.enter_context(forward_replaced(module, self._checkpointed(name, module)))
            for handle in self._hooks():
                stack.callback(handle.remove)
            stack.enter_context(autocast_clearing(self._cache_dropped))
            self._stamp(self.events, "start")
            self.tape.restart()
            yield
            self._move()
            self._stamp(self.events, "end")
        torch.accelerator.synchronize(self.device)

    def _hooks(self) -> Iterator[Any]:
        """Hooks of leaf modules, of gradients, and of any optimizer; handles to remove them."""
        yield self._model.register_forward_pre_hook(lambda *_: self._forward_begins())
        yield self._model.register_forward_hook(lambda *_: self._move())
        for name, module in self._model.named_modules():
            if next(module.children(), None) is None:
                yield module.register_forward_pre_hook(lambda one, *_, name=name: self._inside(name, one))
                yield module.register_forward_hook(lambda _, args, out, name=name: self._left(name, args, out))
        for parameter in self._model.parameters():
            if parameter.requires_grad:
                yield parameter.register_post_accumulate_grad_hook(self._accumulated)  # type: ignore[no-untyped-call]
        yield register_optimizer_step_pre_hook(lambda *_: self._optimizer("optimizer"))
        yield register_optimizer_step_post_hook(lambda *_: self._optimizer(None))

    def _stamp(self, events: dict[str, torch.Event], name: str) -> None:
        event = torch.Event(self.device, enable_timing=True)
        event.record()
        events[name] = event

    def _forward_begins(self) -> None:
        """Gradients that are there already do not grow in this step."""
        self._move()
        self._demand.fetch(self._model)
        self._stamp(self.events, "forward")
        self.charges.to(("forward", -1))
        self.forward_start = len(self.tape.segments)
        held = {key: one.grad for key, one in states_of(self._model).items() if one.grad is not None}
        self._grown, self.old_gradient_bytes = set(held), sum(device_bytes(one) for one in held.values())

    def _move(self, **changes: Any) -> None:
        self.tape.cut(replace(self.tape.place, **changes))
        self.lives.end_expired(len(self.tape.segments))

    def _cache_dropped(self) -> None:
        """Autocast's context has ended; in backward it may be that of a recomputation only."""
        held = self.lives.asked
        self._move()
        self.lives.end_expired(len(self.tape.segments), all_at_once=True)
        if self.tape.place.run == "forward":
            return
        if "backward over" in self.events:
            self.cache_end = self.cache_end or len(self.tape.segments)
        elif self.cached is None:
            self.cached = held if held != self.lives.asked else frozenset()

    def _cut(self) -> int:
        """Begin a new segment where the step is; its number."""
        if "end" not in self.events:
            self._move()
        return len(self.tape.segments)

    def _optimizer(self, module: str | None) -> None:
        if module is not None and "optimizer" not in self.events:
            self._stamp(self.events, "optimizer")
        self.charges.to(None)
        self._move(run="backward", block=None, ended=0, module=module)

    def _inside(self, name: str, module: nn.Module) -> None:
        with self.charges.aside():
            self._demand.fetch(module)
        self._move(module=name)

    def _left(self, name: str, inputs: object, outputs: object) -> None:
        """A leaf module has run; its backward lasts from its output's gradient to its input's."""
        self._move(module=None)
        if self.tape.place.run != "forward" or not torch.is_grad_enabled():
            return
        for tensors, begins in ((outputs, True), (inputs, False)):
            for tensor in device_tensors(tensors, self.device):
                if tensor.requires_grad and not tensor.is_leaf:
                    tensor.register_hook(lambda _, begins=begins: self._leaf_backward(name, begins))  # type: ignore[no-untyped-call]

    def _leaf_backward(self, name: str, begins: bool) -> None:
        if begins:
            self._turn_back()
            self._move(run="backward", module=name)
        elif self.tape.place.module == name:
            self._move(module=None)

    def _turn_back(self) -> None:
        if "backward" not in self.events:
            self._stamp(self.events, "backward")
            self.charges.to(("turn", len(self.calls)))
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_over)

    def _backward_over(self) -> None:
        """A block whose inputs need no gradient has no other end."""
        place = self.tape.place
        if place.run == "backward" and place.block is not None:
            self._backward_ends(place.block)
        self._stamp(self.events, "backward over")
        self.charges.to(None)

    def _accumulated(self, parameter: torch.Tensor) -> None:
        """A gradient is there: from here on it belongs to the model's states."""
        self._move()
        self.charges.complete(self._names[id(parameter)])
        address = parameter.untyped_storage()._cdata
        if address not in self._grown and parameter.grad is not None:
            self._grown.add(address)
            self.tape.gradient_bytes += device_bytes(parameter.grad)
        self._demand.gradient(parameter)
        self.tape.restart()

    def _checkpointed(self, name: str, module: nn.Module) -> Callable[..., Any]:
        """The block's forward, checkpointed, with its segments around it."""
        forward = module.forward

        def run(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(*args, **kwargs)
            call = self._begin(name, module, self._inputs((args, kwargs)))
            held = self._aliased((args, kwargs))
            result = self._run(call, module, forward, [(args, kwargs)], held)
            self._end(call, module, self._inputs(held), result)
            return result

        return run

    def _run(self, call: Call, module: nn.Module, forward: Callable[..., Any], given: list[Any], held: Any) -> Any:
        """Forward runs on what is given; the checkpoint holds other tensors on the same storages.

        So the program's own tensors tell when they go.
        """
        held_args, held_kwargs = held

        def body(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = given.pop() if given else (args, kwargs)
            return forward(*args, **kwargs)

        recomputing = self._recomputing(call, module, self._inputs(held))
        contexts = watching_saves(call.saved.pack), recomputing
        return checkpoint(
            body, *held_args, use_reentrant=False, early_stop=False, context_fn=lambda: contexts, **held_kwargs
        )

    def _inputs(self, values: object) -> list[torch.Tensor]:
        return [tensor for tensor in device_tensors(values, self.device) if not self._is_state(tensor)]

    def _aliased(self, values: Any) -> Any:
        """The values with each tensor replaced by one alias, the same everywhere: blocks compare by `is`."""
        tensors = {id(tensor): tensor for tensor in self._inputs(values)}
        aliases = {key: Alias.apply(tensor) for key, tensor in tensors.items()}  # type: ignore[no-untyped-call]
        return tree_map(lambda value: aliases.get(id(value), value), values)

    def _begin(self, name: str, module: nn.Module, inputs: list[torch.Tensor]) -> Call:
        number = len(self.calls)
        if torch._C._current_graph_task_id() >= 0:
            raise InvalidInput(
                f"block {name} runs forward within the backward pass: the program checkpoints by itself, but a profile "
                "checkpoints each block to measure it; profile the step without its own torch.utils.checkpoint"
            )
        if self.tape.place.run != "forward":
            raise InvalidInput(
                f"block {name} runs forward after a backward has begun: profile a step of one forward and one backward"
            )
        given = [self.boundaries.add(tensor) for tensor in inputs]
        saved = SavedStorages(self.boundaries, self._states, self.device)
        call = Call(name, self.boundaries.used(given), saved)
        self.calls.append(call)
        for tensor in inputs:
            if tensor.requires_grad and not tensor.is_leaf:
                tensor.register_hook(lambda _: self._backward_ends(number))  # type: ignore[no-untyped-call]
        self._move()
        self._stamp(call.events, "entering")
        self.charges.to(None)
        self._demand.enter(module, inputs)
        self.tape.restart()
        self.tape.place = Place("forward", number, number)
        self._watch(given, inputs)
        self._stamp(call.events, "forward")
        self.charges.to(("forward", number))
        return call

    def _watch(self, numbers: Iterable[int], tensors: Iterable[torch.Tensor]) -> None:
        for number, tensor in zip(numbers, tensors, strict=True):
            self.lives.watch(number, tensor, len(self.tape.segments))

    def _is_state(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._states

    def _end(self, call: Call, module: nn.Module, inputs: list[torch.Tensor], result: object) -> None:
        number = len(self.calls) - 1
        self._stamp(call.events, "forward end")
        self.charges.to(None)
        outputs = device_tensors(result, self.device)
        numbers = [self.boundaries.add(tensor) for tensor in outputs]
        for tensor in outputs:
            if tensor.requires_grad:
                call.needs_gradient = True
                tensor.register_hook(lambda _: self._backward_begins(number))  # type: ignore[no-untyped-call]
        self._move(block=None, ended=number + 1, module=None)
        self._watch(numbers, outputs)
        outliving = [one for one in call.saved.number_outliving() if one not in (*call.inputs, *numbers)]
        for one in self.boundaries.used(outliving):
            self.lives.ask(one, len(self.tape.segments))
        self._demand.leave(module, inputs)
        self._stamp(call.events, "left")
        self.charges.to(("behind", number))
        self.tape.restart()

    @contextmanager
    def _recomputing(self, call: Call, module: nn.Module, inputs: list[torch.Tensor]) -> Iterator[None]:
        number = self.calls.index(call)
        self._stamp(call.events, "recompute")
        self.charges.to(None)
        self._move()
        self._demand.enter(module, inputs)
        self.tape.restart()
        self.tape.place = Place("recompute", number, number)
        self.charges.to(("rest", number))

        def look(_: torch.Tensor) -> None:
            self.charges.saved(number)
            self._move()
            call.last_save = len(self.tape.segments)

        with watching_saves(look):
            yield
        self._move(run="backward", module=None, recomputed=True)
        call.recompute_end = len(self.tape.segments)
        self._stamp(call.events, "recompute end")
        self.charges.to(("backward", number))

    def _backward_begins(self, number: int) -> None:
        """Called at the first gradient; a block may return a tensor of an earlier block, whose gradient comes later."""
        place = self.tape.place
        if "backward" in self.calls[number].events:
            return
        if place.run == "backward" and place.block is not None:
            self._backward_ends(place.block)
        self._turn_back()
        self._move()
        self.tape.place = Place("backward", number, number)
        self._stamp(self.calls[number].events, "backward")
        self.charges.to(("backward", number))

    def _backward_ends(self, number: int) -> None:
        place = self.tape.place
        if place.run != "backward" or place.block != number:
            return
        self._move(block=None, ended=number, module=None, recomputed=False)
        self._stamp(self.calls[number].events, "backward end")
        self.charges.to(None)
        self._demand.leave(self._blocks[self.calls[number].name], [])
        self._stamp(self.calls[number].events, "backward left")
        self.charges.to(("ahead", number))
        self.tape.restart()
