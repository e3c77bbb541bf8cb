"""A choice that changes in place: what is kept, gone and in use is mended where a change touches it, not made anew.

`draft.kept_of` looks at all stages, while a local search changes one decision of hundreds. A `State` holds the same
facts; `put`, `take`, `send` and `keep` update them in microseconds.
"""

from bisect import bisect_left, bisect_right, insort
from itertools import pairwise

import numpy as np

from solvers.joint.choice import Choice, Gap, Shadow
from solvers.joint.given import Given


class State:
    """What a choice makes the stages hold.

    `again[t]`: the ops i < t computed again in stage t, `running`: the stages that have any; `reads[t]`: by op how many
    ops of stage t read it. `touched[i]`: the stages that compute or read op i, in order; `made[i]`: those that compute
    it. `away[i, a]`: where the gap ends that begins behind stage a and in which op i's output leaves; `waits[i, a]`:
    the stage behind which it does, where that is a later one than a; `leaves[s]`, `returns[b]`: (a, op) by the stage
    behind which they leave, and by that which reads them next. `held[t]`: bytes of outputs that stage t only keeps;
    `local[t]`: the most of all others in use there; `ticks[t]`: how long it takes; `total`: how long all take.
    """

    def __init__(self, given: Given, choice: Choice, shadow: Shadow | None = None) -> None:
        self.given, count = given, len(given)
        self.shadow = shadow or Shadow(0, [0] * count, 0.0)
        self._owed = 0  # for what is away
        self.again: list[set[int]] = [set() for _ in range(count)]
        self.running: set[int] = set()
        self.reads: list[dict[int, int]] = [dict.fromkeys(given.graph.inputs[t], 1) for t in range(count)]
        self.touched: list[list[int]] = [[i, *given.graph.users[i]] for i in range(count)]
        self.made: list[set[int]] = [{i} for i in range(count)]
        self.away: dict[Gap, int] = {}
        self.waits: dict[Gap, int] = {}
        self.leaves: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self.returns: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self.held = np.zeros(count, dtype=np.int64)
        self.ticks = list(given.time)
        self.total = sum(self.ticks)
        size = given.graph.size
        self.plain = [size[t] + sum(size[j] for j in given.graph.inputs[t]) + given.workspace[t] for t in range(count)]
        self._local = np.array(self.plain, dtype=np.int64)
        self._dirty: set[int] = set()  # the stages whose most in use is to be found anew
        self._was: dict[int, int] = {}  # what it was when the changes began, of those found anew since then
        self.static = given.problem.static_bytes
        self.journal: list[tuple[bool, int, int]] = []  # since `begin`: put or taken, stage, op
        self.seen: dict[Gap, int | None] = {}  # the gaps that changed since then: behind which stage they left
        for i, stages in enumerate(self.touched):
            for a, b in pairwise(stages):
                self.held[a + 1 : b] += size[i]
        for t, run in enumerate(choice.again):
            for i in sorted(run):
                self.put(t, i)
        for i, a in sorted(choice.away):
            self.send(i, a, choice.waits.get((i, a)))
        self.begin()

    # -- what there is

    @property
    def local(self) -> np.ndarray:
        """The most in use by stage of what it touches: found anew here, once for all changes since it was asked."""
        self._found_anew()
        return self._local

    def _found_anew(self) -> None:
        for t in self._dirty:
            self._was.setdefault(t, int(self._local[t]))
            self._local[t] = self._most(t) if self.again[t] else self.plain[t]
        self._dirty.clear()

    def gap(self, i: int, a: int) -> int | None:
        """Where the gap behind stage `a`, which touches op i, ends: at a stage that reads it; None if there is none."""
        stages = self.touched[i]
        place = bisect_right(stages, a)
        if place == len(stages) or stages[place] in self.made[i] or stages[place - 1] != a:
            return None
        return stages[place]

    def around(self, i: int, t: int) -> Gap | None:
        """The stages that touch op i's output before and after stage t, which does not; None where it is not kept."""
        stages = self.touched[i]
        place = bisect_left(stages, t)
        if place in (0, len(stages)) or stages[place] == t or stages[place] in self.made[i]:
            return None
        return stages[place - 1], stages[place]

    def there(self, i: int, t: int) -> bool:
        """Whether stage t touches or keeps op i's output, or it is away then."""
        return i in self.reads[t] or t in self.made[i] or self.around(i, t) is not None

    def behind(self, i: int, a: int) -> int:
        """The stage behind which the output leaves over whose gap, which begins with stage a, it is away."""
        return self.waits.get((i, a), a)

    @property
    def owed(self) -> int:
        """What the choice owes beside its time, in ticks."""
        return self._owed + int(self.shadow.stays * float(self.held[self.shadow.stage]))

    def _leaving(self, i: int, a: int, b: int) -> int:
        return self.shadow.leaves[i] if a < self.shadow.stage <= b else 0

    # -- changes

    def begin(self) -> None:
        """What has changed so far stays; `undo` comes back to here."""
        self._found_anew()
        self._was.clear()
        self.journal.clear()
        self.seen.clear()

    def undo(self) -> None:
        """Take back all changes since `begin`."""
        for put, t, i in reversed([*self.journal]):
            (self.take if put else self.put)(t, i)
        for (i, a), left in [*self.seen.items()]:
            leaves = self.behind(i, a) if (i, a) in self.away else None
            if leaves != left:
                if leaves is not None:
                    self.keep(i, a)
                if left is not None:
                    self.send(i, a, left)
        self._dirty.clear()
        for t, most in self._was.items():
            self._local[t] = most
        self.begin()

    def send(self, i: int, a: int, behind: int | None = None) -> None:
        """Let what is kept from stage a on leave, if there are stages in between; behind a later one of these, if told.

        At least one is left that it is away in.
        """
        b = self.gap(i, a)
        if b is None or b == a + 1:
            return
        leaves = a if behind is None else max(a, min(behind, b - 2))
        self.seen.setdefault((i, a), None)
        self.held[leaves + 1 : b] -= self.given.graph.size[i]
        self.away[i, a] = b
        self._owed += self._leaving(i, a, b)
        if leaves > a:
            self.waits[i, a] = leaves
        insort(self.leaves[leaves], (a, i))
        insort(self.returns[b], (a, i))

    def keep(self, i: int, a: int) -> None:
        """Let the gap behind stage a stay."""
        b, leaves = self.away.pop((i, a)), self.waits.pop((i, a), a)
        self._owed -= self._leaving(i, a, b)
        self.seen.setdefault((i, a), leaves)
        self.held[leaves + 1 : b] += self.given.graph.size[i]
        self.leaves[leaves].remove((a, i))
        self.returns[b].remove((a, i))

    def put(self, t: int, i: int) -> None:
        """Compute op i again in stage t. Where its output or an input is away then, it is back from t on."""
        self.journal.append((True, t, i))
        reads = self.reads[t]
        for j in self.given.graph.inputs[i]:
            if j in reads:
                reads[j] += 1
            else:
                reads[j] = 1
                if t not in self.made[j]:
                    self._touch(j, t, False)
        self._touch(i, t, True)
        self.again[t].add(i)
        self.running.add(t)
        self._mend(t)

    def take(self, t: int, i: int) -> None:
        """Compute op i no longer again in stage t. Whatever left behind stage t then does not."""
        self.journal.append((False, t, i))
        reads = self.reads[t]
        self.again[t].discard(i)
        if not self.again[t]:
            self.running.discard(t)
        self._untouch(i, t, i in reads)
        for j in self.given.graph.inputs[i]:
            reads[j] -= 1
            if not reads[j]:
                del reads[j]
                if t not in self.made[j]:
                    self._untouch(j, t, False)
        self._mend(t)

    def _touch(self, j: int, t: int, made: bool) -> None:
        """Stage t reads or makes op j's output: the gap around it is two, the first none if it is made there."""
        stages, size = self.touched[j], self.given.graph.size[j]
        place = bisect_left(stages, t)
        a = stages[place - 1]
        self._dirty.add(a)
        if place < len(stages) and stages[place] == t:  # it was read there already
            self._lose(j, a, t, size)
            self.made[j].add(t)
            return
        b = stages[place] if place < len(stages) and stages[place] not in self.made[j] else None
        stages.insert(place, t)
        gone, leaves = (j, a) in self.away, self.behind(j, a)
        if b is not None:
            self._lose(j, a, b, size)
            self.held[t + 1 : b] += size
        if made:
            self.made[j].add(t)
            return
        self.held[a + 1 : t] += size
        if gone:
            self.send(j, a, leaves)

    def _untouch(self, j: int, t: int, read: bool) -> None:
        """Stage t does not make op j's output (it may still read it), or does not read it: the reverse."""
        stages, size = self.touched[j], self.given.graph.size[j]
        place = bisect_left(stages, t)
        a = stages[place - 1]
        self._dirty.add(a)
        if read:
            self.made[j].discard(t)
            self.held[a + 1 : t] += size
            return
        gone, leaves = (j, a) in self.away, self.behind(j, a)
        if t not in self.made[j]:
            self._lose(j, a, t, size)
        self.made[j].discard(t)
        b = stages[place + 1] if place + 1 < len(stages) and stages[place + 1] not in self.made[j] else None
        if b is not None:
            self._lose(j, t, b, size)
            self.held[a + 1 : b] += size
        del stages[place]
        if gone and b is not None:
            self.send(j, a, leaves)

    def _lose(self, j: int, a: int, b: int, size: int) -> None:
        """Forget the gap from a to b, whether it is held or away."""
        if (j, a) in self.away:
            del self.away[j, a]
            self._owed -= self._leaving(j, a, b)
            leaves = self.waits.pop((j, a), a)
            self.seen.setdefault((j, a), leaves)
            self.held[a + 1 : leaves + 1] -= size
            self.leaves[leaves].remove((a, j))
            self.returns[b].remove((a, j))
        else:
            self.held[a + 1 : b] -= size

    def _mend(self, t: int) -> None:
        given, took = self.given, self.ticks[t]
        if not given.graph.comm[t]:
            self.ticks[t] = given.time[t] + sum(given.time[i] for i in self.again[t])
            self.total += self.ticks[t] - took
        self._dirty.add(t)

    def _most(self, t: int) -> int:
        """The most in use in stage t of what it touches."""
        graph, workspace, run = self.given.graph, self.given.workspace, self.again[t]
        size, order = graph.size, [*sorted(run), t]
        level = peak = sum(size[j] for j in self.reads[t] if j not in run)
        last = {j: i for i in order for j in (*graph.inputs[i], i)}
        buffer = size[t] + workspace[t] if graph.comm[t] else 0
        for i in order:
            level += size[i]
            peak = max(peak, level + workspace[i] + (buffer if i < t else 0))
            for j in (*graph.inputs[i], i):
                if last[j] == i and self.gap(j, t) is None:
                    level -= size[j]
        return peak
