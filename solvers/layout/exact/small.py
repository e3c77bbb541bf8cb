"""All decisions of a small or tight problem that fit, one after the other: the optimum by counting."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, product

from solvers.ir.layout import POLICIES, LayoutPlan, Policy
from solvers.layout.evaluate import Instance, activation_peak, least_buffers
from solvers.layout.exact.local import Incumbent

MOST_POLICIES, MOST_SETS = 20_000, 4_096
"""No more choices of policies, and of persistent chunks, are looked at: beyond, nothing is counted."""


def fitting(given: Instance, most: int) -> list[LayoutPlan] | None:
    """All decisions that fit both memories; None where they are more than `most`, or too many to look at.

    Buffers that no chunk would ever use are left out. What a decision takes of the device is a sum of what chunks,
    buffers and policies take, so each choice is weighed once.
    """
    blocks = sum(block.choice for block in given.problem.blocks)
    if len(POLICIES) ** blocks > MOST_POLICIES or 2 ** len(given.problem.chunks) > MOST_SETS:
        return None
    found: list[LayoutPlan] = []
    for plan in _every(given):
        if len(found) == most:
            return None
        found.append(plan)
    return found


def try_all(incumbent: Incumbent, plans: Sequence[LayoutPlan], stop: Callable[[], bool]) -> bool:
    """Offer these decisions; False if stopped before the end."""
    for plan in plans:
        if stop():
            return False
        incumbent.offer(plan)
    return True


def _every(given: Instance) -> Iterator[LayoutPlan]:
    problem = given.problem
    numbers, away = range(len(problem.chunks)), sum(chunk.host_bytes for chunk in problem.chunks)
    choices = _weighed(given)
    peaks = [peak for peak, _, _ in choices]
    for persistent in chain.from_iterable(combinations(numbers, count) for count in range(len(numbers) + 1)):
        states = sum(problem.chunk_bytes + problem.chunks[chunk].persistent_bytes for chunk in persistent)
        on_host = problem.host_bytes - away + sum(problem.chunks[chunk].host_bytes for chunk in persistent)
        for buffers in range(least_buffers(given, persistent), len(numbers) - len(persistent) + 1):
            room = problem.device_bytes - problem.fixed_bytes - states - buffers * problem.chunk_bytes
            for _, swapped, policies in choices[: bisect_right(peaks, room)]:
                if swapped <= on_host:
                    yield LayoutPlan(persistent=persistent, buffers=buffers, policies=policies)


def _weighed(given: Instance) -> list[tuple[int, int, tuple[Policy, ...]]]:
    """All policies with their activation peak and the bytes that they swap, the lowest peak first."""
    blocks = given.problem.blocks
    options: list[tuple[Policy, ...]] = [POLICIES if block.choice else POLICIES[:1] for block in blocks]
    return sorted(
        (
            activation_peak(given, policies),
            sum(block.activation_bytes for block, policy in zip(blocks, policies, strict=True) if policy == "swap"),
            policies,
        )
        for policies in product(*options)
    )
