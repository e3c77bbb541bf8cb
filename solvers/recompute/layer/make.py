"""From a layer's operators to the recomputation problem of a pipeline stage."""

from solvers.ir.errors import require_at_least
from solvers.ir.recompute import LayerOp, RecomputeLayerProblem, Window
from solvers.workload.costs import LayerCosts


def layer_problem(
    costs: LayerCosts,
    *,
    layers: int,
    inflight_microbatches: int,
    last_stage: bool,
    budget_bytes: int,
    static_bytes: int,
    stall_us: int = 0,
) -> RecomputeLayerProblem:
    """The stage's problem: its windows are the layer's collectives, forward then backward, then the stall.

    `stall_us` is time that each layer may use of the cool-down's stalls (Lynx §4.2): a stage that waits for T µs before
    a backward pass of n layers offers T // n to each. Raises `InvalidInput` where a number is out of range.
    """
    require_at_least(1, layers=layers, inflight_microbatches=inflight_microbatches)
    require_at_least(0, budget_bytes=budget_bytes, static_bytes=static_bytes, stall_us=stall_us)
    return RecomputeLayerProblem(
        name=f"{costs.name}, {layers} layers, {inflight_microbatches} in flight{', last stage' if last_stage else ''}",
        layers=layers,
        inflight_microbatches=inflight_microbatches,
        last_stage=last_stage,
        budget_bytes=budget_bytes,
        static_bytes=static_bytes,
        layer_input_bytes=costs.input_bytes,
        windows=layer_windows(costs, stall_us),
        ops=layer_ops(costs),
    )


def layer_ops(costs: LayerCosts) -> tuple[LayerOp, ...]:
    """The forward operators with whether some backward operator reads their output."""
    return tuple(
        LayerOp(
            name=op.name,
            time_us=op.time_us,
            output_bytes=op.output_bytes,
            inputs=op.inputs,
            comm=op.comm,
            needed=needed,
        )
        for op, needed in zip(costs.forward, costs.needed, strict=True)
    )


def layer_windows(costs: LayerCosts, stall_us: int = 0) -> tuple[Window, ...]:
    """The collectives in time order; those that take no time (hidden already) are no windows."""
    windows = [Window(name=op.name, phase="forward", time_us=op.time_us) for op in costs.forward if op.comm]
    windows += [Window(name=op.name, phase="backward", time_us=op.time_us) for op in costs.backward if op.comm]
    windows += [Window(name="cool-down stall", phase="stall", time_us=stall_us)]
    return tuple(window for window in windows if window.time_us > 0)
