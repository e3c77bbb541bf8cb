"""One microbatch through the layers of a stage, forwards and backwards, as an operator graph (README.md §6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from solvers.ir.fields import require
from solvers.ir.graph import Op, OpGraph, Phase, Tensor, TensorKind
from solvers.workload.costs import BackwardOp, ForwardOp, LayerCosts
from solvers.workload.stage import StageExtra

STATES, INPUT, GRADIENT = "states", "stage input", "gradient from the next stage"
"""Tensors that are there before the step: static memory, and what the neighbouring stages send."""


@dataclass(frozen=True)
class _Step:
    """An operator and the tensors that it makes (name and bytes)."""

    op: Op
    makes: tuple[tuple[str, int], ...]
    layer: int | None = None


def stage_graph(
    costs: LayerCosts,
    layers: int,
    *,
    embedding: StageExtra | None = None,
    head: StageExtra | None = None,
    static_bytes: int = 0,
) -> OpGraph:
    """The graph of one microbatch's forward and backward pass through `layers` layers on one device.

    Without `embedding` the stage's input, without `head` the gradient of its output is there before the step. Memory
    is what lives: a tensor from its birth to its last use, static memory always.
    """
    require(layers >= 1, f"layers is {layers}: a stage needs at least one")
    steps = _forward(costs, layers, embedding, head)
    steps += _backward(costs, layers, embedding, head)
    given: list[tuple[str, int, TensorKind]] = [(STATES, static_bytes, "parameter")] if static_bytes else []
    given += [] if embedding else [(INPUT, costs.input_bytes, "input")]
    given += [] if head else [(GRADIENT, costs.input_bytes, "input")]
    tensors = _tensors(steps, given)
    return OpGraph(
        name=f"{costs.name}, {layers} layers",
        ops=tuple(step.op for step in steps),
        tensors=tensors,
        memory_bytes=live_bytes(tensors, len(steps)),
        source="computed from the model's shape by formulas and a roofline (solvers/workload)",
        layer_of_op=tuple(step.layer for step in steps),
    )


def live_bytes(tensors: Sequence[Tensor], count: int) -> tuple[int, ...]:
    """Bytes that live during each op: from birth (or from the start) to the last use; tensors without a use, always."""
    change = [0] * (count + 1)
    for tensor in tensors:
        change[0 if tensor.born is None else tensor.born] += tensor.bytes
        last = tensor.uses[-1] if tensor.uses else (count - 1 if tensor.born is None else tensor.born)
        change[last + 1] -= tensor.bytes
    return tuple(accumulate(change[:count]))


def _forward(costs: LayerCosts, layers: int, embedding: StageExtra | None, head: StageExtra | None) -> list[_Step]:
    steps = []
    read = INPUT
    if embedding is not None:
        makes = (("embedding", costs.input_bytes), ("embedding kept", embedding.activation_bytes))
        steps.append(_step("embedding", "forward", embedding.forward_us, (), makes))
        read = "embedding"
    for layer in range(layers):
        names = [f"layer {layer} {op.name}" for op in costs.forward]
        for op, name in zip(costs.forward, names, strict=True):
            reads = tuple(names[source] for source in op.inputs) + ((read,) if op.reads_input else ())
            steps.append(_layer_step(op, "forward", name, reads, layer))
        read = names[-1]
    if head is not None:
        kept = max(0, head.activation_bytes - costs.input_bytes)  # its input is the last layer's output
        steps.append(_step("head", "forward", head.forward_us, (read,), (("head", kept),)))
    return steps


def _backward(costs: LayerCosts, layers: int, embedding: StageExtra | None, head: StageExtra | None) -> list[_Step]:
    steps = []
    gradient = GRADIENT
    inputs = [INPUT if embedding is None else "embedding"]
    inputs += [f"layer {layer} {costs.forward[-1].name}" for layer in range(layers)]
    if head is not None:
        gradient = "head backward"
        made = ((gradient, costs.input_bytes),)
        steps.append(_step(gradient, "backward", head.backward_us, ("head", inputs[-1]), made))
    for layer in reversed(range(layers)):
        names = [f"layer {layer} {op.name}" for op in costs.backward]
        for op, name in zip(costs.backward, names, strict=True):
            reads = tuple(f"layer {layer} {costs.forward[source].name}" for source in op.forward_inputs)
            reads += tuple(names[source] for source in op.backward_inputs)
            reads += (inputs[layer],) if op.reads_input else ()
            reads += (gradient,) if op.reads_gradient else ()
            steps.append(_layer_step(op, "backward", name, reads, layer))
        gradient = names[-1]
    if embedding is not None:
        read = (gradient, "embedding kept")
        steps.append(_step("embedding backward", "backward", embedding.backward_us, read, ()))
    return steps


def _layer_step(op: ForwardOp | BackwardOp, phase: Phase, name: str, reads: tuple[str, ...], layer: int) -> _Step:
    makes = ((name, op.output_bytes),) if op.output_bytes else ()
    built = Op(
        name=name,
        phase=phase,
        time_us=op.time_us,
        inputs=reads,
        outputs=tuple(tensor for tensor, _ in makes),
        kind="comm" if op.comm else "compute",
        flops=op.flops,
        bytes=op.bytes,
    )
    return _Step(built, makes, layer)


def _step(name: str, phase: Phase, time_us: int, reads: tuple[str, ...], makes: tuple[tuple[str, int], ...]) -> _Step:
    outputs = tuple(tensor for tensor, _ in makes)
    return _Step(Op(name=name, phase=phase, time_us=time_us, inputs=reads, outputs=outputs), makes)


def _tensors(steps: Sequence[_Step], given: Sequence[tuple[str, int, TensorKind]]) -> tuple[Tensor, ...]:
    """All tensors: first those that are there before, then each op's, with their uses in order."""
    uses: dict[str, list[int]] = {}
    forward = sum(step.op.phase == "forward" for step in steps)
    for number, step in enumerate(steps):
        for name in dict.fromkeys((*step.op.inputs, *step.op.outputs)):
            uses.setdefault(str(name), []).append(number)
    before = [Tensor(id=name, bytes=size, uses=tuple(uses.get(name, ())), kind=kind) for name, size, kind in given]
    made = [
        Tensor(
            id=name,
            bytes=size,
            born=number,
            uses=tuple(uses[name]),
            saved=number < forward <= uses[name][-1],
            kind="activation" if number < forward else "other",
        )
        for number, step in enumerate(steps)
        for name, size in step.makes
    ]
    return (*before, *made)
