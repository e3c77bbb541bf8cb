"""How long the pipelines take to agree on their gradients at the end of a step."""

from collections.abc import Sequence

from solvers.ir.replan import ReplanProblem


def sync_us(problem: ReplanProblem, pipelines: Sequence[Sequence[int]]) -> int:
    """T_sync in µs of pipelines given by their layers per stage; 0 for a single one.

    Layers are all-reduced in rounds, and a node takes part in one all-reduce at a time: the fullest stage needs as many
    rounds as it has layers, and that number is enough (`replan.transfer.collectives`, README).
    """
    if len(pipelines) < 2:
        return 0
    return problem.sync_us + problem.layer_sync_us * max(map(max, pipelines))
