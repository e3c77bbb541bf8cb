"""Problems for the estimator's tests."""

import msgspec

from solvers.ir import ReplanProblem
from tests.solvers.replan import clusters

PLAIN = msgspec.structs.replace(
    clusters.PLAIN,
    nodes=64,
    microbatches=64,
    layers=32,
    forward_us=1,
    backward_us=2,
    memory_bytes=1000,
    layer_static_bytes=0,
    layer_activation_bytes=0,
)


def changed(**fields: object) -> ReplanProblem:
    """The plain problem with other fields."""
    return msgspec.structs.replace(PLAIN, **fields)
