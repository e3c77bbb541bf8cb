"""All decisions of a tiny problem, one after the other: the optimum by counting."""

from collections.abc import Callable, Iterator
from itertools import combinations, product

from solvers.ir.layout import POLICIES, LayoutPlan
from solvers.layout.evaluate import Instance, least_buffers
from solvers.layout.exact.local import Incumbent


def decisions(given: Instance) -> int:
    """Upper limit on the number of decisions."""
    blocks = sum(block.choice for block in given.problem.blocks)
    chunks = len(given.problem.chunks)
    return int(len(POLICIES) ** blocks * 2**chunks * (chunks + 1))


def try_all(incumbent: Incumbent, stop: Callable[[], bool]) -> bool:
    """Offer every decision, except buffers that no chunk would ever use; False if stopped before the end."""
    for plan in _every(incumbent.given):
        if stop():
            return False
        incumbent.offer(plan)
    return True


def _every(given: Instance) -> Iterator[LayoutPlan]:
    problem = given.problem
    numbers = range(len(problem.chunks))
    options = [POLICIES if block.choice else POLICIES[:1] for block in problem.blocks]
    for count in range(len(numbers) + 1):
        for persistent in combinations(numbers, count):
            for buffers in range(least_buffers(given, persistent), len(numbers) - count + 1):
                for policies in product(*options):
                    yield LayoutPlan(persistent=persistent, buffers=buffers, policies=policies)
