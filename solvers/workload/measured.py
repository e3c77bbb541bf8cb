"""The costs of one layer from a measured graph: the layer that occurs most often, its times averaged (README.md §7)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from solvers.ir.errors import InvalidInput
from solvers.ir.fields import TensorId
from solvers.ir.graph import Op, OpGraph, Phase, Tensor
from solvers.workload.costs import BackwardOp, ForwardOp, LayerCosts
from solvers.workload.repeats import plain_name, repeated_layers

Version = tuple[TensorId, int | None]
"""A tensor as an op wrote it; None: as it was before the step. An op that writes in place makes a new version."""


@dataclass(frozen=True)
class _Layer:
    """The ops of one layer, in execution order, as indices of the graph's ops."""

    forward: tuple[int, ...]
    backward: tuple[int, ...]


def layer_from_graph(graph: OpGraph) -> LayerCosts:
    """The layer of a measured graph that occurs most often.

    `layer_of_op` says which ops belong to a layer; where it is absent, repeated blocks are looked for. Of the equal
    layers the middle one tells what reads what, and times are their mean (cumulative, so that rounding never adds
    up). An op's output are the storages that it makes or writes and that a later op reads; gradients of parameters
    are static memory. Raises `InvalidInput` where no layer has both passes, or a pass does not end in one tensor.
    """
    layer_of_op = _layer_of_op(graph)
    alike = _alike(graph, layer_of_op)
    chosen = sorted(alike)[len(alike) // 2]
    reader = _Reader(graph, layer_of_op)
    layer = reader.with_outputs_last(alike[chosen], chosen)
    forward = _times(graph, [one.forward for one in alike.values()], alike[chosen].forward)
    backward = _times(graph, [one.backward for one in alike.values()], alike[chosen].backward)
    return reader.costs(chosen, layer, {**forward, **backward})


def measured_layers(graph: OpGraph) -> int:
    """How many layers of a measured graph are alike; raises `InvalidInput` where there are none."""
    return len(_alike(graph, _layer_of_op(graph)))


def measured_static_bytes(graph: OpGraph) -> int:
    """What no decision about those layers changes: parameters, their gradients, optimizer states, and the step's input.

    What other forward ops (embedding, head, layers of another kind) keep for the backward pass counts too.
    """
    layer_of_op = _layer_of_op(graph)
    alike = _alike(graph, layer_of_op)
    total = 0
    for tensor in graph.tensors:
        outside = tensor.born is None or layer_of_op[tensor.born] not in alike
        fixed = tensor.kind in ("parameter", "gradient", "optimizer") or tensor.born is None
        total += tensor.bytes if fixed or (tensor.saved and outside) else 0
    return total


def _layer_of_op(graph: OpGraph) -> Sequence[int | None]:
    return graph.layer_of_op if graph.layer_of_op is not None else repeated_layers(graph)


def _alike(graph: OpGraph, layer_of_op: Sequence[int | None]) -> dict[int, _Layer]:
    """The layers that run the same ops, by number: of the kind that occurs most often, of equals the longer one."""
    kinds: dict[tuple[object, ...], dict[int, _Layer]] = {}
    for number in sorted({layer for layer in layer_of_op if layer is not None}):
        forward, backward = (_of_phase(graph, layer_of_op, number, phase) for phase in ("forward", "backward"))
        if forward and backward:
            kind = (_kind(graph, forward), _kind(graph, backward))
            kinds.setdefault(kind, {})[number] = _Layer(forward, backward)
    if not kinds:
        raise InvalidInput(
            f"graph {graph.name!r} has no layer with forward and backward ops: profile a training step of a model "
            "with repeated layers, or give layer_of_op"
        )
    return max(kinds.values(), key=lambda layers: (len(layers), len(next(iter(layers.values())).forward)))


def _of_phase(graph: OpGraph, layer_of_op: Sequence[int | None], layer: int, phase: Phase) -> tuple[int, ...]:
    pairs = enumerate(zip(graph.ops, layer_of_op, strict=True))
    return tuple(number for number, (op, where) in pairs if where == layer and op.phase == phase)


def _kind(graph: OpGraph, ops: Iterable[int]) -> tuple[object, ...]:
    return tuple((plain_name(graph.ops[number].name), graph.ops[number].kind) for number in ops)


def _times(graph: OpGraph, layers: Sequence[Sequence[int]], chosen: Sequence[int]) -> dict[int, int]:
    """For each op of the chosen layer the mean time over all layers, rounded cumulatively."""
    totals = [sum(graph.ops[op].time_us for op in same) for same in zip(*layers, strict=True)]
    ends = [round(end / len(layers)) for end in accumulate(totals)]
    return dict(zip(chosen, (after - before for before, after in pairwise([0, *ends])), strict=True))


class _Reader:
    """Answers what an op reads, as versions, and what a version is to a layer."""

    def __init__(self, graph: OpGraph, layer_of_op: Sequence[int | None]) -> None:
        self.graph = graph
        self.layer_of_op = layer_of_op
        self.tensors: Mapping[TensorId, Tensor] = {tensor.id: tensor for tensor in graph.tensors}
        self.born: dict[int, list[TensorId]] = {}
        for tensor in graph.tensors:
            if tensor.born is not None:
                self.born.setdefault(tensor.born, []).append(tensor.id)
        self.reads, self.readers = self._versions()

    def _versions(self) -> tuple[list[tuple[Version, ...]], dict[Version, list[int]]]:
        """Each op's inputs with the op that wrote them last, and each version's readers."""
        writer = {tensor.id: tensor.born for tensor in self.graph.tensors if tensor.born is not None}
        reads: list[tuple[Version, ...]] = []
        readers: dict[Version, list[int]] = {}
        for number, op in enumerate(self.graph.ops):
            versions = tuple(dict.fromkeys((name, writer.get(name)) for name in op.inputs))
            reads.append(versions)
            for version in versions:
                readers.setdefault(version, []).append(number)
            writer.update(dict.fromkeys(op.outputs, number))
        return reads, readers

    def output_bytes(self, number: int) -> int:
        """Bytes of what an op makes or writes for others, gradients of parameters excepted."""
        return sum(self.tensors[name].bytes for name, op in self._made(number) if self.readers.get((name, op)))

    def _counts(self, name: TensorId) -> bool:
        return self.tensors[name].kind in ("activation", "other", "input")

    def with_outputs_last(self, layer: _Layer, number: int) -> _Layer:
        """The layer with the op that the next layer reads at the end of each pass."""
        return _Layer(self._ended(layer.forward, number, "forward"), self._ended(layer.backward, number, "backward"))

    def _ended(self, ops: tuple[int, ...], layer: int, phase: Phase) -> tuple[int, ...]:
        """The ops, the one whose output leaves the layer in this phase put last."""
        inside = set(ops)
        leaving = [op for op in ops if any(self._leaves(version, layer, phase) for version in self._made(op))]
        if len(leaving) != 1:
            names = ", ".join(self.graph.ops[op].name for op in leaving) or "none"
            raise InvalidInput(
                f"layer {layer} of graph {self.graph.name!r} hands on {len(leaving)} outputs in its {phase} pass "
                f"({names}), where one is needed: give layer_of_op with layers that are joined by one tensor"
            )
        last = leaving[0]
        if any(reader in inside and reader > last for version in self._made(last) for reader in self._read_in(version)):
            raise InvalidInput(
                f"layer {layer} of graph {self.graph.name!r} goes on to use what it hands on in its {phase} pass "
                f"({self.graph.ops[last].name}): give layer_of_op with the layer's end after the last use"
            )
        return (*(op for op in ops if op != last), last)

    def _made(self, op: int) -> list[Version]:
        """What an op returns or writes, and what it makes inside (as a layer norm's mean)."""
        names = dict.fromkeys((*self.graph.ops[op].outputs, *self.born.get(op, ())))
        return [(name, op) for name in names if self._counts(name)]

    def _read_in(self, version: Version) -> list[int]:
        return self.readers.get(version, [])

    def _leaves(self, version: Version, layer: int, phase: Phase) -> bool:
        """Whether an op of the same phase outside the layer reads it."""
        return any(
            self.graph.ops[reader].phase == phase and self.layer_of_op[reader] != layer
            for reader in self._read_in(version)
        )

    def costs(self, number: int, layer: _Layer, times: Mapping[int, int]) -> LayerCosts:
        """The layer's ops with their sources numbered within it."""
        place = {op: index for ops in (layer.forward, layer.backward) for index, op in enumerate(ops)}
        given = self._given(number, layer.forward)
        forward = []
        for op in layer.forward:
            forward.append(
                ForwardOp(
                    inputs=_sorted(place[writer] for writer in self._writers(op) if writer in layer.forward),
                    reads_input=any(version in given for version in self.reads[op]),
                    **self._common(op, times),
                )
            )
        backward = [self._backward(op, layer, place, given, times) for op in layer.backward]
        return LayerCosts(
            name=f"{self.graph.name}, layer {number}",
            input_bytes=sum(self.tensors[name].bytes for name, _ in given),
            forward=tuple(forward),
            backward=tuple(backward),
        )

    def _backward(
        self, op: int, layer: _Layer, place: Mapping[int, int], given: set[Version], times: Mapping[int, int]
    ) -> BackwardOp:
        writers = self._writers(op)
        above = [
            name
            for name, writer in self.reads[op]
            if writer is not None and writer not in place and self._is_gradient(name, writer)
        ]
        return BackwardOp(
            forward_inputs=_sorted(place[writer] for writer in writers if writer in layer.forward),
            backward_inputs=_sorted(place[writer] for writer in writers if writer in layer.backward),
            reads_input=any(version in given for version in self.reads[op]),
            reads_gradient=bool(above),
            **self._common(op, times),
        )

    def _writers(self, op: int) -> list[int]:
        return [writer for _, writer in self.reads[op] if writer is not None]

    def _is_gradient(self, name: TensorId, writer: int) -> bool:
        return self.graph.ops[writer].phase == "backward" and self._counts(name)

    def _given(self, number: int, forward: Sequence[int]) -> set[Version]:
        """What the layer reads of other layers (of what is outside all layers, if of no other layer): its input."""
        outside: set[Version] = set()
        of_layers: set[Version] = set()
        for name, writer in {version for op in forward for version in self.reads[op]}:
            if writer is not None and self.layer_of_op[writer] != number and self._counts(name):
                (outside if self.layer_of_op[writer] is None else of_layers).add((name, writer))
        return of_layers or outside

    def _common(self, number: int, times: Mapping[int, int]) -> dict[str, Any]:
        op: Op = self.graph.ops[number]
        return {
            "name": plain_name(op.name),
            "time_us": times[number],
            "output_bytes": self.output_bytes(number),
            "comm": op.kind == "comm",
            "flops": op.flops,
            "bytes": op.bytes,
        }


def _sorted(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))
