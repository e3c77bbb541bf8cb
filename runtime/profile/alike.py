"""Whether two steps did the same: the same operators, making tensors of the same sizes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runtime.device.native import core
from solvers.ir.graph import OTHER_SEQUENCE, OTHER_SIZES


@dataclass(frozen=True)
class Ran:
    """The operators of a recording by id and name, and for each the bytes of the tensors' storages that it made."""

    ids: tuple[int, ...]
    names: tuple[str, ...]
    made: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, recorder: core.DetailedRecorder) -> "Ran":
        """What a recorder saw."""
        operators, made = recorder.operators(), defaultdict[int, list[int]](list)
        for storage in recorder.storages():
            if storage.born is not None:
                made[storage.born].append(storage.bytes)
        return cls(
            tuple(one.id for one in operators),
            tuple(one.name for one in operators),
            tuple(tuple(made[number]) for number in range(len(operators))),
        )

    def last(self, count: int) -> "Ran":
        """The last so many operators."""
        begin = max(0, len(self.ids) - count)
        return Ran(self.ids[begin:], self.names[begin:], self.made[begin:])


def unlike(before: Ran, step: Ran) -> Iterator[str]:
    """What a step did otherwise than the one before, if anything, in words of a profile's source."""
    if before.ids != step.ids:
        yield OTHER_SEQUENCE
        return
    for number, (earlier, now) in enumerate(zip(before.made, step.made, strict=True)):
        if earlier != now:
            yield f"{OTHER_SIZES} ({step.names[number]}, operator {number}: {_bytes(now)}, then {_bytes(earlier)})"
            return


def _bytes(sizes: Sequence[int]) -> str:
    return " + ".join(map(str, sizes)) + " bytes" if sizes else "none"
