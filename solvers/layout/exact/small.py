"""All decisions of a small or tight problem that fit, one after the other: the optimum by counting."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, product
from typing import TypeAlias

from solvers.ir.layout import POLICIES, LayoutPlan, Policy
from solvers.layout.evaluate import Instance, activation_peak, least_buffers
from solvers.layout.exact.local import Incumbent

_Weighed: TypeAlias = tuple[int, int, tuple[Policy, ...]]
"""Policies behind their activation peak and the bytes that they swap."""
MOST_POLICIES, MOST_SETS, MOST_LOOKS = 20_000, 4_096, 2_000_000
"""No more choices of policies, of persistent chunks, and of both with buffers are looked at; beyond, none is counted.

Two million take a fifth of a second.
"""


def fitting(given: Instance, most: int) -> list[LayoutPlan] | None:
    """All decisions that fit both memories; None where they are more than `most`, or too many to look at.

    Buffers that no chunk would ever use are left out. What a decision takes of the device is a sum of what chunks,
    buffers and policies take, so each choice is weighed once.
    """
    blocks = sum(block.choice for block in given.problem.blocks)
    if len(POLICIES) ** blocks > MOST_POLICIES or 2 ** len(given.problem.chunks) > MOST_SETS:
        return None
    found: list[LayoutPlan] = []
    looks = 0
    for persistent, buffers, on_host, choices in _roomy(given):
        looks += len(choices)
        if looks > MOST_LOOKS:
            return None
        found += [
            LayoutPlan(persistent=persistent, buffers=buffers, policies=policies)
            for _, swapped, policies in choices
            if swapped <= on_host
        ]
        if len(found) > most:
            return None
    return found


def try_all(incumbent: Incumbent, plans: Sequence[LayoutPlan], stop: Callable[[], bool]) -> bool:
    """Offer these decisions; False if stopped before the end."""
    for plan in plans:
        if stop():
            return False
        incumbent.offer(plan)
    return True


def _roomy(given: Instance) -> Iterator[tuple[tuple[int, ...], int, int, list[_Weighed]]]:
    """Persistent chunks, buffers, the host bytes left for swaps, and the policies that the device has room for."""
    problem = given.problem
    numbers, away = range(len(problem.chunks)), sum(chunk.host_bytes for chunk in problem.chunks)
    choices = _weighed(given)
    peaks = [peak for peak, _, _ in choices]
    for persistent in chain.from_iterable(combinations(numbers, count) for count in range(len(numbers) + 1)):
        states = sum(problem.chunk_bytes + problem.chunks[chunk].persistent_bytes for chunk in persistent)
        on_host = problem.host_bytes - away + sum(problem.chunks[chunk].host_bytes for chunk in persistent)
        if on_host < 0:
            continue
        for buffers in range(least_buffers(given, persistent), len(numbers) - len(persistent) + 1):
            room = problem.device_bytes - problem.fixed_bytes - states - buffers * problem.chunk_bytes
            yield persistent, buffers, on_host, choices[: bisect_right(peaks, room)]


def _weighed(given: Instance) -> list[_Weighed]:
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
