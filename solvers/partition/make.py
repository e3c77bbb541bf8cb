"""From a measured step to the problem of training its layers in a pipeline."""

from collections.abc import Sequence

from solvers.ir.errors import InvalidInput, require_at_least
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.pipeline import PassOrder, PipelineProblem, PipelineStage
from solvers.recompute.layer.make import layer_ops, layer_windows
from solvers.workload import LayerCosts, layer_from_graph, measured_layers
from solvers.workload.parts import measured_parts


def pipeline_of(
    costs: LayerCosts,
    stages: Sequence[PipelineStage],
    *,
    layers: int,
    microbatches: int,
    p2p_us: int = 0,
    order: PassOrder = "1f1b",
) -> PipelineProblem:
    """The problem of `layers` such layers on these stages; its windows are the layer's collectives."""
    require_at_least(1, layers=layers, microbatches=microbatches)
    return PipelineProblem(
        name=f"{costs.name}, {len(stages)} stages, {microbatches} microbatches, {order}",
        layers=layers,
        microbatches=microbatches,
        order=order,
        p2p_us=p2p_us,
        layer_input_bytes=costs.input_bytes,
        ops=layer_ops(costs),
        windows=layer_windows(costs),
        backward_us=costs.backward_us,
        stages=tuple(stages),
    )


def make_pipeline_problem(
    graph: OpGraph,
    hardware: Hardware,
    budget_bytes: int | None = None,
    *,
    stages: int = 1,
    microbatches: int = 1,
    bytes_per_s: int | None = None,
    order: PassOrder = "1f1b",
) -> PipelineProblem:
    """The problem of training the measured model in `stages` stages, `microbatches` such steps at a time.

    The graph is a step of one microbatch; every stage has `budget_bytes`, or the device's memory. What the model does
    before its layers falls to the first stage, what is between and behind them to the last one. Messages go at
    `bytes_per_s`, needed for more than one stage. Raises `InvalidInput` where nothing repeats.
    """
    require_at_least(1, stages=stages, microbatches=microbatches, bytes_per_s=bytes_per_s)
    if stages > 1 and bytes_per_s is None:
        raise InvalidInput(f"{stages} stages send messages: give bytes_per_s, the rate between two of them")
    costs, parts, count = layer_from_graph(graph), measured_parts(graph), measured_layers(graph)
    budget = hardware.device().memory_bytes if budget_bytes is None else budget_bytes
    states, kept, forward, backward = parts.state_bytes, parts.activation_bytes, parts.forward_us, parts.backward_us
    between = (max(0, forward.layers - count * costs.forward_us), max(0, backward.layers - count * costs.backward_us))

    def stage(number: int) -> PipelineStage:
        first, last = number == 0, number == stages - 1
        return PipelineStage(
            budget_bytes=budget,
            static_bytes=first * states.first + last * states.last,
            layer_static_bytes=-(-states.layers // count),
            extra_us=(
                first * forward.first + last * (forward.last + between[0]),
                first * backward.first + last * (backward.last + between[1]),
            ),
            extra_bytes=first * kept.first + last * kept.last,
        )

    hop = 0 if bytes_per_s is None or stages == 1 else -(-parts.message_bytes * 10**6 // bytes_per_s)
    every = [stage(number) for number in range(stages)]
    return pipeline_of(costs, every, layers=count, microbatches=microbatches, p2p_us=hop, order=order)
