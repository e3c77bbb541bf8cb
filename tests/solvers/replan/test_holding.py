"""How much memory a node needs at least."""

import msgspec
import pytest

from solvers.replan.holding import holds, least_memory_bytes
from tests.solvers.replan.exact.problems import least_step_us, random_problem


@pytest.mark.parametrize("seed", range(40))
def test_exactly_so_many_bytes_are_enough(seed: int) -> None:
    problem = random_problem(seed, nodes=5, layers=5)
    least = least_memory_bytes(problem)
    enough = msgspec.structs.replace(problem, memory_bytes=least)
    assert holds(enough) and least_step_us(enough) is not None
    if least > 1:
        short = msgspec.structs.replace(problem, memory_bytes=least - 1)
        assert not holds(short) and least_step_us(short) is None


def test_no_node_holds_nothing() -> None:
    """What is left where all nodes fail; it was an `IndexError`."""
    assert not holds(msgspec.structs.replace(random_problem(0, nodes=5, layers=5), nodes=0))
