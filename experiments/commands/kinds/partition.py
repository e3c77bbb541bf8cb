"""`bayplan make partition --shape`: how many layers each stage gets, where Lynx-HEU decides what it recomputes."""

from dataclasses import replace

from experiments.commands.kinds.face import Face, Made, Request, budget_bytes
from experiments.commands.kinds.stage import stage_of
from solvers.ir.amounts import show_bytes


def _from_shape(request: Request, shape: str) -> Made:
    """Costs of all stages with every number of layers; a percentage is of the even partition's fullest stage."""
    from solvers.partition import partition_problem
    from solvers.partition.pipeline import Pipeline
    from solvers.partition.policies import look_up
    from solvers.partition.stages import Stages

    stage = stage_of(request, shape)
    cut = stage.parallelism
    peak = max(replace(stage, index=index).unlimited_bytes for index in range(cut.pipeline))
    amount = budget_bytes(request.budget, peak, stage.cluster)
    rows = Stages(Pipeline(stage.shape, cut, stage.cluster, amount).problem, look_up).rows()
    costs = [[None if choice is None else choice.cost_us for choice in row] for row in rows]
    name = f"{stage.shape.name}, {cut.pipeline} stages, tensor {cut.tensor}, {cut.microbatches} microbatches of "
    problem = partition_problem(f"{name}{cut.microbatch}, costs by heu", costs)
    return Made.of(
        problem, [("budget", show_bytes(amount)), ("fullest stage where nothing is recomputed", show_bytes(peak))]
    )


FACE = Face(
    meaningless=("stage", "layers", "stall_us", "ungrouped"),
    why="means nothing to a partition, which is of all stages",
    from_shape=_from_shape,
)
