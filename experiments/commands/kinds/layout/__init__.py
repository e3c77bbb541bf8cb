"""`layout` on the command line."""

from experiments.commands.kinds.face import Face
from experiments.commands.kinds.layout.make import OF_OTHERS, OPTIONS, OWN, from_graph, from_profile, from_shape
from experiments.commands.kinds.layout.simulate import simulate

FACE = Face(
    options=OPTIONS,
    own=OWN,
    meaningless=OF_OTHERS,
    why="means nothing to layout, which is of one rank's whole model",
    from_graph=from_graph,
    from_shape=from_shape,
    from_profile=from_profile,
    simulate=simulate,
)
