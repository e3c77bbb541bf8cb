"""Masters and working parameters: what the optimizer and the program know, and what forward computes with.

Between steps a model's parameters are its masters, on the host or, of persistent chunks, on the device. While it runs
its modules hold the working parameters instead: views of the chunks on the device. So whatever looks at parameters or
gradients between steps (clipping, schedulers, scalers, logging, `state_dict`) finds the real ones.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from runtime.device import shapes_only
from runtime.layout.chunk import Chunk, Slot, aligned, pinned, working_view
from runtime.layout.foreach import is_plain
from solvers.ir.errors import InvalidInput

Touch = Callable[[Chunk, int], None]


@dataclass(frozen=True)
class Held:
    """A parameter and every place of the model that holds it, under its first name."""

    name: str
    parameter: nn.Parameter
    places: tuple[tuple[nn.Module, str], ...]


def held_parameters(model: nn.Module) -> dict[str, Held]:
    """A model's parameters by their first names, each once."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    named: dict[int, tuple[str, nn.Parameter]] = {}
    for prefix, module in model.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                named.setdefault(id(parameter), (f"{prefix}.{key}" if prefix else key, parameter))
                places.setdefault(id(parameter), []).append((module, key))
    return {name: Held(name, one, tuple(places[number])) for number, (name, one) in named.items()}


@dataclass(frozen=True)
class Build:
    """How chunks are built: what each takes on which device, and the type that is computed in (None: their own)."""

    room_bytes: int
    device: torch.device
    dtype: torch.dtype | None

    @property
    def untouched(self) -> bool:
        """Whether no number is read or written: tensors of the device have shapes only."""
        return shapes_only(self.device)

    def travels_as(self, parameter: Tensor) -> torch.dtype:
        """The type in which a parameter travels and is computed with."""
        return self.dtype if self.dtype is not None and parameter.is_floating_point() else parameter.dtype

    def chunks(
        self, model: nn.Module, members: Sequence[Sequence[str]], unused: Sequence[str], persistent: Set[int]
    ) -> list[Chunk]:
        """A model's chunks, with one that stays for what is unused; buffers go to the device."""
        held = held_parameters(model)
        with no_weak_references(model):
            chunks = [
                self.chunk(number, [held[name] for name in names], persistent=number in persistent)
                for number, names in enumerate(members)
            ]
            if unused:
                build, rest = replace(self, room_bytes=0), [held[name] for name in unused]
                chunks.append(build.chunk(len(chunks), rest, persistent=True))
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = buffer.to(self.device)
        return chunks

    def chunk(self, number: int, members: Sequence[Held], *, persistent: bool) -> Chunk:
        """Put parameters into a new chunk: from now on they are its masters, under their own identities."""
        parameters = [one.parameter for one in members]
        sizes = [one.numel() * self.travels_as(one).itemsize for one in parameters]
        starts, home_starts = _starts(sizes), _starts([one.nbytes for one in parameters])
        trainable = any(one.requires_grad for one in parameters)
        flat = torch.zeros(max(self.room_bytes, starts[-1]), dtype=torch.uint8, device=self.device)
        place = self.device if persistent else torch.device("cpu")
        mixed = any(self.travels_as(one) != one.dtype for one in parameters)

        def beside(size: int) -> Tensor:
            make = torch.empty if self.untouched else torch.zeros
            return make(size, dtype=torch.uint8, device=place)

        chunk = Chunk(
            number,
            starts[-1],
            trainable,
            persistent,
            flat.nbytes,
            flat,
            host=None if persistent else pinned(starts[-1], untouched=self.untouched),
            gradients=self._gradients(starts[-1], persistent, mixed) if trainable else None,
            homes=beside(home_starts[-1]) if mixed else None,
            home_gradients=beside(home_starts[-1]) if mixed and trainable else None,
            here=persistent,
        )
        for start, home, one in zip(starts, home_starts, members, strict=False):
            chunk.slots.append(self._slot(chunk, start, home, one))
        if not self.untouched:
            chunk.narrow()
        if not persistent:
            chunk.storage.resize_(0)
        return chunk

    def _gradients(self, size: int, persistent: bool, mixed: bool) -> Tensor | None:
        if not persistent:
            return pinned(size, untouched=self.untouched)
        return None if mixed else torch.zeros(size, dtype=torch.uint8, device=self.device)

    def _slot(self, chunk: Chunk, start: int, home_start: int, held: Held) -> Slot:
        master = held.parameter
        stride = torch.empty_like(master, device="meta").stride()  # its own, unless it has gaps
        dtype = self.travels_as(master)
        slot = Slot(
            held.name,
            held.places,
            start,
            home_start,
            master.shape,
            stride,
            dtype,
            master.requires_grad,
            is_plain(master),  # asked before it becomes one
            master,
            master,
        )
        flats = (chunk.homes, chunk.host, chunk.flat)
        home = slot.home(next(flat for flat in flats if flat is not None))
        with torch.no_grad():
            if not self.untouched:
                home.copy_(master)
        moved = working_view(home, master.requires_grad)
        if master.grad is not None:
            moved.grad = master.grad.to(home.device)
            if chunk.persistent and slot.trainable and not self.untouched:  # no second room beside its own
                moved.grad = chunk.gradient_home(slot).copy_(moved.grad)
        torch.utils.swap_tensors(master, moved)  # type: ignore[no-untyped-call]
        if not master._post_accumulate_grad_hooks:
            # The dictionary of hooks that were there stays with the object: autograd would not see later ones in it.
            master._post_accumulate_grad_hooks = None  # type: ignore[assignment]
        if chunk.mixed or not chunk.persistent:
            slot.working = working_view(slot.view(chunk.flat), slot.trainable)
        return slot


def accumulating_node(parameter: Tensor) -> Any:
    """The node that adds to a parameter's gradient; it and what hangs on it live as long as a graph or we hold it."""
    with torch.enable_grad():
        return parameter.view_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]


@contextmanager
def no_weak_references(model: nn.Module) -> Iterator[None]:
    """Inside, recurrent nets hold none to their parameters, which could not become masters; behind it they do again."""
    nets = [module for module in model.modules() if "_flat_weight_refs" in module.__dict__]
    for net in nets:
        net.__dict__["_flat_weight_refs"] = []
    try:
        yield
    finally:
        for net in nets:
            weights: list[nn.Parameter | None] = net.__dict__["_flat_weights"]
            net.__dict__["_flat_weight_refs"] = [None if one is None else weakref.ref(one) for one in weights]


def _starts(sizes: Sequence[int]) -> list[int]:
    """Where each begins, and the end of all."""
    return [0, *accumulate(aligned(size) for size in sizes)]


def settle_states(optimizer: torch.optim.Optimizer) -> None:
    """Let the optimizer's states lie where their masters do; counters that it keeps on the host stay there."""
    for group in optimizer.param_groups:
        counted = bool(group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for key, value in state.items():
                if isinstance(value, Tensor) and (value.ndim or counted or not value.is_cpu):
                    state[key] = value.to(parameter.device)


class _Watched(dict[str, nn.Parameter | None]):
    """A module's working parameters: whoever takes one finds its chunk on the device."""

    def __init__(
        self, slots: dict[str, tuple[Chunk, int]], touch: Touch, values: dict[str, nn.Parameter | None]
    ) -> None:
        super().__init__(values)
        self._slots, self._touch = slots, touch

    def __getitem__(self, key: str) -> nn.Parameter | None:
        slot = self._slots.get(key)
        if slot is not None:
            self._touch(*slot)
        return super().__getitem__(key)


class Places:
    """Which parameters each module holds while it runs."""

    def __init__(self, chunks: Sequence[Chunk], touch: Touch) -> None:
        self._working: dict[nn.Module, dict[str, nn.Parameter | None]] = {}
        self._masters: dict[nn.Module, dict[str, nn.Parameter]] = {}
        found: dict[nn.Module, dict[str, tuple[Chunk, int]]] = {}
        for chunk in chunks:
            for place, slot in enumerate(chunk.slots):
                for module, key in slot.places:
                    found.setdefault(module, {})[key] = chunk, place
        for module, mine in found.items():
            if all(chunk.slots[place].working is chunk.slots[place].master for chunk, place in mine.values()):
                continue
            values = dict(module._parameters) | {
                key: chunk.slots[place].working for key, (chunk, place) in mine.items()
            }
            away = {key: slot for key, slot in mine.items() if not slot[0].persistent}
            self._working[module] = _Watched(away, touch, values)
            self._masters[module] = {key: chunk.slots[place].master for key, (chunk, place) in mine.items()}

    def first(self, modules: Iterable[nn.Module]) -> nn.Module | None:
        """The first of these modules that holds other parameters while it runs."""
        return next((module for module in modules if module in self._working), None)

    def holds(self, module: nn.Module) -> bool:
        """Whether this module holds its working parameters now."""
        return module.__dict__["_parameters"] is self._working[module]

    @contextmanager
    def installed(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """Inside, these modules hold their working parameters; raises `InvalidInput` where they hold others' now."""
        before: list[tuple[nn.Module, Any, Any]] = []
        for module in modules:
            working = self._working.get(module)
            if working is not None:
                held = module.__dict__["_parameters"]
                if held is not working:
                    self._require_masters(module, held)
                before.append((module, held, module.__dict__.get("_flat_weights")))
                module.__dict__["_parameters"] = working
                if "_flat_weights" in module.__dict__:  # recurrent nets keep a list of their own
                    names: list[str] = module.__dict__["_flat_weights_names"]
                    module.__dict__["_flat_weights"] = [working[name] for name in names]
        try:
            yield
        finally:
            for module, parameters, flat in reversed(before):
                module.__dict__["_parameters"] = parameters
                if flat is not None:
                    module.__dict__["_flat_weights"] = flat

    def _require_masters(self, module: nn.Module, held: dict[str, nn.Parameter | None]) -> None:
        for key, master in self._masters[module].items():
            if held.get(key) is not master:
                raise InvalidInput(
                    f"{key!r} of a {type(module).__name__} is another one than when the layout was decided, as under "
                    "torch.func.functional_call, but a wrapped model computes with its own parameters: unwrap(model) "
                    "first"
                )
