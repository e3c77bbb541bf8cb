"""One stage of a named model, as the options of `make --shape` describe it."""

import msgspec

from experiments.commands.kinds.face import Request
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.ir.errors import InvalidInput
from solvers.workload import Parallelism


def stage_of(request: Request, shape: str) -> Stage:
    """The stage that the options describe; raises `InvalidInput` where one is missing or means nothing."""
    cut = request.cut
    if cut["microbatch"] is None:
        raise InvalidInput("--shape needs --microbatch, the samples of one pass: give it, as in --microbatch 8")
    stages = cut["pipeline"] or 1
    model = read_shape(shape)
    if cut["sequence"] is not None:
        model = msgspec.structs.replace(model, sequence=cut["sequence"])
    parallelism = Parallelism(
        tensor=cut["tensor"] or 1,
        pipeline=stages,
        sequence_parallel=bool(cut["sequence_parallel"]),
        microbatch=cut["microbatch"],
        microbatches=cut["microbatches"] or stages,
    )
    return Stage(model, parallelism, request.machine, cut["stage"] or 0, cut["layers"], not cut["ungrouped"])
