"""The numbers by which plans know a model's blocks: those that the measured step has called, in the order it did."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import networkx as nx

from runtime.recompute.calls import Call, calls_before

MOST_CALLS = 128
"""So many calls of several forward passes have numbers of their own at most: each has its operators in the problem."""


@dataclass(frozen=True)
class Numbering:
    """`numbers` of blocks, by their place in the model; `measured`: how often a step called each of them that has one.

    None: nothing is measured yet, and every block is known by its place. Where several forward passes come before their
    backward pass, each call may have a number of its own: `order` is which block each of these calls, by place.
    """

    numbers: Sequence[int]
    measured: Mapping[int, int] | None = None
    order: Sequence[int] = ()

    def called(self, calls: Sequence[Call], frozen: Collection[int] = ()) -> "Numbering":
        """Number the blocks that these calls had a backward pass of, and all others behind them; calls get these, too.

        So what is measured, and the plan made for it, know the former only, in the order of the passes: blocks of two
        lists may take turns. Last come those of the others that are `frozen`, by their place in the model.
        """
        known = _in_order([one for one in calls if one.tape is not None and one.backward_waits is not None])
        others = sorted(set(range(len(self.numbers))) - set(known), key=lambda index: (index in frozen, index))
        by_index = {index: number for number, index in enumerate([*known, *others])}
        for one in calls:
            one.block = by_index[one.block] if one.block in known else -1
        numbers = [by_index[index] for index in range(len(self.numbers))]
        return Numbering(numbers, Counter(one.block for one in calls))

    def by_calls(self, calls: Sequence[Call]) -> "Numbering | None":
        """Number the calls themselves, all one pass, if they are several forward passes that go back as one.

        That is, in the opposite order. Calls must have the numbers of `called`, and get theirs; None, and nothing
        changes, where they are no such passes or too many.
        """
        several = len({one.block for one in calls}) < len(calls) <= MOST_CALLS
        known = all(one.tape is not None and one.backward_waits is not None and one.block >= 0 for one in calls)
        back = all(one.backward_marks[0] < before.backward_marks[0] for before, one in pairwise(calls))
        if not several or not known or not back:
            return None
        place_of = {number: index for index, number in enumerate(self.numbers)}
        order = [place_of[one.block] for one in calls]
        for number, one in enumerate(calls):
            one.block, one.before = number, calls[number - 1] if number else None
        return Numbering(self.numbers, Counter(range(len(calls))), order)

    def number_of(self, index: int, at: int) -> int:
        """The number of a pass's call at this place, of a block by its place in the model; a new one where none is."""
        if not self.order:
            return self.numbers[index]
        return at if at < len(self.order) and self.order[at] == index else len(self.order) + index

    @cached_property
    def places(self) -> set[int]:
        """The blocks that the measured step called, by their place in the model."""
        if self.order:
            return {*self.order}
        return {index for index, number in enumerate(self.numbers) if number in (self.measured or ())}

    @cached_property
    def counts(self) -> Counter[int]:
        """How often the measured step called each of them."""
        if self.order:
            return Counter(self.order)
        known = self.measured or {}
        return Counter({index: known.get(self.numbers[index], 0) for index in self.places})

    def precedes(self, index: int, other: int) -> bool:
        """Whether passes call a block before another one, by their places: as measured, where both were."""
        if {index, other} <= self.places:
            return self.numbers[index] < self.numbers[other]
        return index < other

    def differs(self, number: int, calls: Sequence[Call], policies: int) -> bool:
        """Whether one more call of a block, beside those under way, is none that the plan of so many policies knows."""
        if self.measured is None:
            return False
        alive = sum(one.block == number and one.tape is not None and not one.finished for one in calls)
        return alive >= max(1, self.measured.get(number, 0)) or number >= policies


def _in_order(calls: Sequence[Call]) -> list[int]:
    """Their blocks, each behind those that any pass called before it; where passes contradict each other, by index."""
    blocks = {one.block for one in calls}
    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(blocks)
    for one in calls:
        earlier = next((other.block for other in calls_before(one) if other.block in blocks), None)
        if earlier is not None:
            order.add_edge(earlier, one.block)
    if not nx.is_directed_acyclic_graph(order):
        return sorted(blocks)
    return list(nx.lexicographical_topological_sort(order))
