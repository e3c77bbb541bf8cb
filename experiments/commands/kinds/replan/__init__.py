"""`replan` on the command line."""

from experiments.commands.kinds.face import Face
from experiments.commands.kinds.replan.make import OF_OTHERS, OPTIONS, OWN, from_graph, from_shape
from experiments.commands.kinds.replan.simulate import simulate

FACE = Face(
    options=OPTIONS,
    own=OWN,
    meaningless=OF_OTHERS,
    why="means nothing to replan, which is of all stages",
    of_graph=("pipeline", "microbatches"),
    from_graph=from_graph,
    from_shape=from_shape,
    simulate=simulate,
)
