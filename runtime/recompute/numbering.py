"""The numbers by which plans know a model's blocks, which are those that the measured step has called."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.recompute.calls import Call


@dataclass(frozen=True)
class Numbering:
    """`numbers` of blocks, by their place in the model; `measured`: how often a step called each of them that has one.

    None: nothing is measured yet, and every block is known by its place.
    """

    numbers: Sequence[int]
    measured: Mapping[int, int] | None = None

    def called(self, calls: Sequence[Call]) -> "Numbering":
        """Number the blocks that these calls had a backward pass of, and all others behind them; calls get these, too.

        So what is measured, and the plan made for it, know the former only.
        """
        known = sorted({one.block for one in calls if one.tape is not None and one.backward_waits is not None})
        others = [index for index in range(len(self.numbers)) if index not in known]
        by_index = {index: number for number, index in enumerate([*known, *others])}
        for one in calls:
            one.block = by_index[one.block] if one.block in known else -1
        numbers = [by_index[index] for index in range(len(self.numbers))]
        return Numbering(numbers, Counter(one.block for one in calls))

    def differs(self, number: int, calls: Sequence[Call], policies: int) -> bool:
        """Whether one more call of a block, beside those under way, is none that the plan of so many policies knows."""
        if self.measured is None:
            return False
        alive = sum(one.block == number and one.tape is not None and not one.finished for one in calls)
        return alive >= max(1, self.measured.get(number, 0)) or number >= policies
