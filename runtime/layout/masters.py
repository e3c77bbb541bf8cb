"""Masters and working parameters: what the optimizer and the program know, and what forward computes with.

Between steps a model's parameters are its masters, on the host or, of persistent chunks, on the device. While it runs
its modules hold the working parameters instead: views of the chunks on the device. So whatever looks at parameters or
gradients between steps (clipping, schedulers, scalers, logging, `state_dict`) finds the real ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from runtime.layout.chunk import Chunk, Slot, aligned, pinned, working_view

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


def build_chunk(
    number: int, members: Sequence[Held], room_bytes: int, device: torch.device, *, persistent: bool
) -> Chunk:
    """Put parameters into a new chunk: from now on they are its masters, under their own identities."""
    starts, total = [], 0
    for one in members:
        starts.append(total)
        total += aligned(one.parameter.nbytes)
    trainable = any(one.parameter.requires_grad for one in members)
    room_bytes = max(room_bytes, total)
    if persistent:
        flat, host = torch.zeros(room_bytes, dtype=torch.uint8, device=device), None
        gradients = torch.zeros(total, dtype=torch.uint8, device=device) if trainable else None
    else:
        flat, host = torch.empty(room_bytes, dtype=torch.uint8, device=device), pinned(total)
        gradients = pinned(total) if trainable else None
    chunk = Chunk(number, total, trainable, persistent, room_bytes, flat, host, gradients, here=persistent)
    for start, one in zip(starts, members, strict=True):
        chunk.slots.append(_slot(chunk, start, one))
    if not persistent:
        chunk.storage.resize_(0)
    return chunk


def _slot(chunk: Chunk, start: int, held: Held) -> Slot:
    master = held.parameter
    stride = torch.empty_like(master, device="meta").stride()  # its own, unless it has gaps
    slot = Slot(held.name, held.places, start, master.shape, stride, master.dtype, master.requires_grad, master, master)
    home = slot.view(chunk.flat if chunk.host is None else chunk.host)
    with torch.no_grad():
        home.copy_(master)
    moved = working_view(home, master.requires_grad)
    if master.grad is not None:
        moved.grad = master.grad.to(home.device)
    torch.utils.swap_tensors(master, moved)  # type: ignore[no-untyped-call]
    if not chunk.persistent:
        slot.working = working_view(slot.view(chunk.flat), slot.trainable)
    return slot


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
        found: dict[nn.Module, dict[str, tuple[Chunk, int]]] = {}
        for chunk in chunks:
            for place, slot in enumerate(chunk.slots):
                for module, key in slot.places:
                    found.setdefault(module, {})[key] = chunk, place
        for module, mine in found.items():
            if all(chunk.persistent for chunk, _ in mine.values()):
                continue
            values = dict(module._parameters) | {
                key: chunk.slots[place].working for key, (chunk, place) in mine.items()
            }
            away = {key: slot for key, slot in mine.items() if not slot[0].persistent}
            self._working[module] = _Watched(away, touch, values)

    @contextmanager
    def installed(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """Inside, these modules hold their working parameters."""
        before: list[tuple[nn.Module, Any, Any]] = []
        for module in modules:
            working = self._working.get(module)
            if working is not None:
                before.append((module, module.__dict__["_parameters"], module.__dict__.get("_flat_weights")))
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
