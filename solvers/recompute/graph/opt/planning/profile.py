"""What a layer with a pattern holds in memory in every stage, if it is computed again just in time.

Just in time means: on the critical path, in the stage of the first backward use.
"""

from dataclasses import dataclass
from functools import cached_property

from solvers.recompute.graph.opt.bound.patterns import LayerView, Pattern


@dataclass(frozen=True)
class Profile:
    """A pattern in one layer: what it costs, keeps until the backward pass, and holds in each stage around it.

    `again[k]` is the stage in which k is computed again just in time; `held[t]` the bytes of this layer in stage t,
    seen from the allocation of op t, where they differ from `kept_bytes` (before `first`) or 0 (behind `last`).
    """

    pattern: Pattern
    cost_us: int
    kept_bytes: int
    again: dict[int, int]
    held: dict[int, int]
    first: int
    last: int


class ProfiledLayer(LayerView):
    """A layer that knows its stages."""

    @cached_property
    def boundary(self) -> list[bool]:
        """Ops that later layers read in the forward pass."""
        return [any(self.layers.end > u > self.ops[-1] for u in self.given.users[i]) for i in self.ops]

    @cached_property
    def start(self) -> int:
        """The first stage of its backward pass: the first that reads an op of it which the next layer does not read."""
        own = [u for k, uses in enumerate(self.uses) if not self.boundary[k] for u in uses]
        return min(own, default=self.layers.end)

    def profile(self, pattern: Pattern, next_start: int) -> Profile:
        """Its profile; `next_start` is when the next layer's backward pass may read what this layer hands on."""
        again = self._again(pattern, next_start)
        kept = self.kept(pattern)
        last = self._last_uses(pattern, kept, again, next_start)
        stages = [t for k in (*kept, *pattern) for t in (*self.uses[k], *([again[k]] if k in again else []))]
        begin, end = min(stages, default=self.start), max(stages, default=self.start - 1)
        return Profile(
            pattern,
            sum(self.given.time[self.ops[k]] for k in pattern),
            self.kept_bytes(pattern),
            again,
            {t: self._held(t, pattern, kept, again, last) for t in range(begin, end + 1)},
            begin,
            end,
        )

    def _again(self, pattern: Pattern, next_start: int) -> dict[int, int]:
        """Stages of the first uses, passed on to what they are computed from; before a communication that reads it."""
        again: dict[int, int] = {}
        for k in sorted(pattern, reverse=True):
            stages = [u - 1 if self.given.comm[u] else u for u in self.uses[k][:1]]
            stages += [next_start] if self.boundary[k] else []
            stages += [again[child] for child in pattern if child > k and k in self.inputs[child]]
            stage = min(stages, default=next_start)  # nothing behind the pattern reads it: as late as its layer allows
            while self.given.comm[stage]:
                stage -= 1
            again[k] = stage
        return again

    def _last_uses(self, pattern: Pattern, kept: set[int], again: dict[int, int], next_start: int) -> dict[int, int]:
        last = {}
        for k in (*kept, *pattern):
            children = [again[child] for child in pattern if k in self.inputs[child]]
            last[k] = max([*self.uses[k], *children, *([next_start] if self.boundary[k] else [])], default=-1)
        return last

    def _held(self, t: int, pattern: Pattern, kept: set[int], again: dict[int, int], last: dict[int, int]) -> int:
        """The layer's most bytes in stage t, less op t's own output while that is not yet there."""
        size = [self.given.size[i] for i in self.ops]
        present = {k for k in kept if last[k] >= t} | {k for k in pattern if again[k] < t <= last[k]}
        level = sum(size[k] for k in present)
        run = sorted(k for k in pattern if again[k] == t)
        peak = 0
        for place, k in enumerate(run):
            level += size[k]
            present.add(k)
            peak = max(peak, level - self.given.size[t])
            later = {j for child in run[place + 1 :] for j in self.inputs[child]}
            for j in (*self.inputs[k], k):
                if j in present and last[j] == t and j not in later and t not in self.uses[j]:
                    present.discard(j)
                    level -= size[j]
        return max(peak, level)
