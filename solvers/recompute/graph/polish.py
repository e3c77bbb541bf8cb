"""Local search on plans: recompute less, or behind communication; every step is replayed."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from solvers.recompute.graph.replay import Instance, Replay, replay_runs, retained, useful
from solvers.recompute.graph.stages import hideable

WINDOWS = 12
"""How many communications before its stage are tried for a recomputation."""


def polish(
    given: Instance, recomputed: Sequence[set[int]], windows: Sequence[int], stop: Callable[[], bool]
) -> list[set[int]]:
    """A valid plan's recomputations made cheaper until nothing helps or `stop` answers True.

    `windows` are the communications, in ascending order, behind which it may hide recomputation.
    """
    return _Polish(given, recomputed, windows, stop).run()


class _Polish:
    """The best plan so far; a move names the run (t, i) that it drops or moves."""

    def __init__(
        self, given: Instance, recomputed: Sequence[set[int]], windows: Sequence[int], stop: Callable[[], bool]
    ) -> None:
        self.given, self.windows, self.stop = given, windows, stop
        self.best = useful(given, recomputed)
        self.found = replay_runs(given, retained(given, self.best))

    def run(self) -> list[set[int]]:
        """Drop what need not be computed again, then hide what must, the most time first."""
        before = -1
        while self.found.objective_us != before and not self.stop():
            before = self.found.objective_us
            for move in (self._drop, self._hide):
                for t, i in self._paid():
                    if self.stop():
                        break
                    if i in self.best[t]:
                        move(t, i)
        return self.best

    def _paid(self) -> list[tuple[int, int]]:
        """The runs on the critical path, the longest first; of equals, inputs first."""
        given = self.given
        pairs = [(t, i) for t, run in enumerate(self.best) if not given.comm[t] for i in run]
        return sorted(pairs, key=lambda pair: (-given.time[pair[1]], pair))

    def _previous(self, t: int, i: int) -> int:
        """The stage of the computation of op i before stage t."""
        return next((s for s in range(t - 1, i, -1) if i in self.best[s]), i)

    def _fits(self, first: int, last: int, i: int) -> bool:
        """Whether op i's output fits on top of every stage in between: necessary for keeping it there."""
        room = self.given.budget - self.given.size[i]
        return all(peak <= room for peak in self.found.peaks[first + 1 : last])

    def _try(self, changed: list[set[int]]) -> bool:
        changed = useful(self.given, changed)
        found: Replay = replay_runs(self.given, retained(self.given, changed))
        if found.violation is not None or found.objective_us >= self.found.objective_us:
            return False
        self.best, self.found = changed, found
        return True

    def _with(self, t: int, i: int, window: int | None) -> list[set[int]]:
        changed = list(self.best)
        changed[t] = changed[t] - {i}
        if window is not None:
            changed[window] = {*changed[window], i}
        return changed

    def _drop(self, t: int, i: int) -> None:
        if self._fits(self._previous(t, i), t, i):
            self._try(self._with(t, i, None))

    def _hide(self, t: int, i: int) -> None:
        """Into the latest window before stage t that has the time, the memory, and the inputs."""
        given, first = self.given, self._previous(t, i)
        place = bisect_left(self.windows, t)
        for c in reversed(self.windows[max(0, place - WINDOWS) : place]):
            if c <= first or not self._fits(c, t, i):
                break
            spent = sum(given.time[k] for k in self.best[c])
            later = any(j in self.best[s] for j in given.inputs[i] for s in range(c + 1, t + 1))
            roomy = hideable(given, c, i) and spent + given.time[i] <= given.time[c]
            if roomy and not later and self._try(self._with(t, i, c)):
                return
