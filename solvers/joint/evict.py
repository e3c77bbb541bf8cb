"""Choices in tenths of a second, for steps of any length: one pass that evicts, and lets leave or computes again."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from solvers.joint.choice import Choice
from solvers.joint.given import Given
from solvers.recompute.graph.evict import evictions
from solvers.recompute.graph.opt.search.evict import Eviction, leave_or_run

SHORT = 1_500
"""The most ops of a step in which recomputation alone is looked for with care."""
PRICES = (1.0, 0.25, 0.0)
"""What a transfer costs, in its own time: the link carries some for nothing."""


def evicted(given: Given, stop: Callable[[], bool]) -> Iterator[Choice]:
    """A choice by recomputation alone, where one is found, and one for each of `PRICES`.

    Of the host's limit only what it cannot take even alone is looked at.
    """
    graph = replace(given.graph, budget=given.budget)
    for found in evictions(graph, stop, (lambda: True) if len(given) > SHORT else stop):
        yield Choice(found)
        break
    moves = [max(out, back) / given.ticks for out, back in zip(given.out_time, given.in_time, strict=True)]
    for price in PRICES:
        returns = [price * move if given.host_takes(i) else math.inf for i, move in enumerate(moves)]
        both = leave_or_run(graph, Eviction(1.0, 0.5), returns, stop)
        if both is not None:
            yield Choice(both[0], both[1])
