"""Storages of a recorded step as the graph's tensors: when they are used, whether they are saved, what they are."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch

from runtime.device.native import core
from solvers.ir.graph import Phase, Tensor, TensorKind


def known_kinds(
    number_of: Callable[[int], int | None],
    model: torch.nn.Module | None,
    optimizer: torch.optim.Optimizer | None,
) -> dict[int, TensorKind]:
    """Kinds of the storages that the model and the optimizer hold, by storage number.

    `number_of` maps a storage's address to its number. A model's buffers count as parameters.
    """
    parameters = list(model.parameters()) if model is not None else []
    buffers = list(model.buffers()) if model is not None else []
    groups: list[tuple[TensorKind, Iterable[torch.Tensor]]] = [
        ("optimizer", _tensors_in(optimizer.state if optimizer is not None else ())),
        ("gradient", [parameter.grad for parameter in parameters if parameter.grad is not None]),
        ("parameter", [*parameters, *buffers]),
    ]
    kinds: dict[int, TensorKind] = {}
    for kind, tensors in groups:
        for tensor in tensors:
            number = number_of(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else None
            if number is not None:
                kinds[number] = kind
    return kinds


def untouched(
    number_of: Callable[[int], int | None], model: torch.nn.Module, device: torch.device
) -> tuple[Tensor, ...]:
    """The model's parameters and buffers on the device that no operator has seen, each storage under its first name."""
    found: dict[int, Tensor] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.layout is torch.strided and tensor.device.type == device.type:
            storage = tensor.untyped_storage()
            if storage.nbytes() and number_of(storage._cdata) is None:
                found.setdefault(storage._cdata, Tensor(id=name, bytes=storage.nbytes(), kind="parameter"))
    return tuple(found.values())


def _tensors_in(value: object) -> Iterator[torch.Tensor]:
    """All tensors in nested dicts, lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for element in value.values():
            yield from _tensors_in(element)
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _tensors_in(element)


def graph_tensors(
    storages: Sequence[core.StorageRecord],
    operators: Sequence[core.OperatorRecord],
    phases: Sequence[Phase],
    known: Mapping[int, TensorKind],
) -> tuple[Tensor, ...]:
    """The graph's tensors, numbered by first appearance."""
    uses = _uses(storages, operators)
    written = {
        number
        for record, phase in zip(operators, phases, strict=True)
        if phase == "optimizer"
        for number in record.written
    }
    tensors = []
    for number, storage in enumerate(storages):
        used_in = [phases[op] for op in uses[number]]
        kind = known.get(number) or _inferred_kind(storage, used_in, phases, number in written)
        saved = kind != "gradient" and _read_in_backward(uses[number], used_in)
        tensors.append(
            Tensor(
                id=number,
                bytes=storage.bytes,
                born=storage.born,
                uses=uses[number],
                saved=saved,
                kind=kind,
                inner=storage.inner,
            )
        )
    return tuple(tensors)


def _uses(storages: Sequence[core.StorageRecord], operators: Sequence[core.OperatorRecord]) -> list[tuple[int, ...]]:
    """For each storage the operators that create, read or write it, each once, in order."""
    touched: list[set[int]] = [set() if storage.born is None else {storage.born} for storage in storages]
    for number, record in enumerate(operators):
        for storage in (*record.inputs, *record.outputs):
            touched[storage].add(number)
    return [tuple(sorted(ops)) for ops in touched]


def _read_in_backward(uses: Sequence[int], used_in: Sequence[Phase]) -> bool:
    """Whether the forward pass touches it and a later operator of the backward pass does too: it must be kept."""
    forward = [op for op, phase in zip(uses, used_in, strict=True) if phase == "forward"]
    backward = [op for op, phase in zip(uses, used_in, strict=True) if phase == "backward"]
    return bool(forward and backward) and forward[0] < backward[-1]


def _inferred_kind(
    storage: core.StorageRecord, used_in: Sequence[Phase], phases: Sequence[Phase], optimized: bool
) -> TensorKind:
    """The kind of a storage, judged by what the step does to it."""
    if storage.gradient:
        return "gradient"
    if storage.born is not None:
        return "activation" if phases[storage.born] == "forward" else "other"
    if set(used_in) == {"optimizer"}:
        return "optimizer"
    return "parameter" if storage.leaf or optimized else "input"
