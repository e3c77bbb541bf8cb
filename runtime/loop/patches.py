"""Functions of PyTorch that are replaced while something needs them to be, and put back afterwards."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True)
class Patch:
    """`owner.name` becomes `around(what it was)`; an owner without that name is left alone."""

    owner: Any
    name: str
    around: Callable[[Function], Function]


@dataclass(frozen=True)
class _Applied:
    patch: Patch
    function: Function
    before: Function | None  # None: inherited

    def undo(self) -> None:
        owner, name = self.patch.owner, self.patch.name
        if vars(owner).get(name) is not self.function:
            return  # somebody has replaced it since, and calls ours from there: taking theirs away would be wrong
        if self.before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, self.before)


class Patches:
    """A set of patches that stand while at least one context of `standing` is open, in whatever thread."""

    def __init__(self, patches: Callable[[], Iterable[Patch]]) -> None:
        self._patches = patches  # asked for at the first entry: naming them may import modules
        self._applied: list[_Applied] = []
        self._open = 0
        self._lock = threading.Lock()

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Applies the patches for the outermost entry, takes them back when the last one leaves."""
        with self._lock:
            if self._open == 0:
                self._applied = [_apply(patch) for patch in list(self._patches()) if hasattr(patch.owner, patch.name)]
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if self._open == 0:
                    for applied in reversed(self._applied):
                        applied.undo()
                    self._applied = []

    @property
    def stand(self) -> bool:
        """Whether they are in place; a function that outlives them asks."""
        return self._open > 0


def _apply(patch: Patch) -> _Applied:
    function = wraps(getattr(patch.owner, patch.name))(patch.around(getattr(patch.owner, patch.name)))
    before = vars(patch.owner).get(patch.name)
    setattr(patch.owner, patch.name, function)
    return _Applied(patch, function, before)
