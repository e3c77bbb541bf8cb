"""When the program itself holds the inputs, outputs and saved tensors of blocks, noted as they appear and go."""

import weakref
from collections import Counter
from collections.abc import Callable

import torch

from runtime.blocks.saved import Boundaries


class Lives:
    """For each storage that the program holds: from which segment on it does, and up to which (None: to the end).

    A tensor object of the program says by itself when it goes. What only a storage is known of (the copies of weights
    that autocast caches) is asked for: all of it when that cache is dropped, at every other segment only the youngest,
    and all once that one has gone; this stays linear in the step.
    """

    def __init__(self, boundaries: Boundaries, cut: Callable[[], int]) -> None:
        self.spans: dict[int, tuple[int, int | None]] = {}
        self._boundaries, self._cut = boundaries, cut
        self._objects: dict[int, weakref.ref[torch.Tensor]] = {}
        self._holders: Counter[int] = Counter()
        self._asked: list[int] = []

    def watch(self, number: int, tensor: torch.Tensor, segment: int) -> None:
        """The program holds this storage by this tensor; a new segment begins when the tensor goes."""
        key = id(tensor)
        if key not in self._objects:
            self._objects[key] = weakref.ref(tensor, lambda _: self._gone(key, number))
            self._holders[number] += 1
            self._begin(number, segment)

    def ask(self, number: int, segment: int) -> None:
        """The program holds this storage by a tensor that is not known; whether it still does is checked later."""
        if number not in self.spans:
            self._asked.append(number)
            self._begin(number, segment)

    @property
    def asked(self) -> frozenset[int]:
        """The storages that are asked for and were there the last time."""
        return frozenset(self._asked)

    def end_expired(self, segment: int, *, all_at_once: bool = False) -> None:
        """What has gone by now of the storages to ask for."""
        if all_at_once or (self._asked and not self._boundaries.alive(self._asked[-1])):
            for number in self._asked:
                if not self._boundaries.alive(number):
                    self.spans[number] = self.spans[number][0], segment
            self._asked = [number for number in self._asked if self.spans[number][1] is None]

    def _begin(self, number: int, segment: int) -> None:
        self.spans[number] = self.spans.get(number, (segment, None))[0], None

    def _gone(self, key: int, number: int) -> None:
        del self._objects[key]
        self._holders[number] -= 1
        if not self._holders[number]:
            self.spans[number] = self.spans[number][0], self._cut()
