"""`bayplan make recompute-layer --shape`: one layer of a stage, with all microbatches that the stage holds."""

from experiments.commands.kinds.face import Face, Made, Request, budget_bytes
from experiments.commands.kinds.stage import stage_of
from solvers.ir.amounts import show_bytes


def _from_shape(request: Request, shape: str) -> Made:
    from solvers.recompute.layer.make import layer_problem

    stage = stage_of(request, shape)
    peak = stage.unlimited_bytes
    amount = budget_bytes(request.budget, peak, stage.cluster)
    problem = layer_problem(
        stage.costs,
        layers=stage.layers,
        inflight_microbatches=stage.inflight,
        last_stage=stage.is_last,
        budget_bytes=amount,
        static_bytes=stage.fixed_bytes,
        stall_us=request.cut["stall_us"] or 0,
    )
    return Made.of(problem, [("budget", show_bytes(amount)), ("memory where nothing is recomputed", show_bytes(peak))])


FACE = Face(from_shape=_from_shape)
