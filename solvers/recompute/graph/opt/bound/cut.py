"""The cut relaxation: what every plan must pay for what is not in memory at one point (README, model K).

Every valid plan gives a point of this model whose cost is at most the plan's, so its optimum is a valid bound, and so
is what any dual vector proves. Operators of repeated layers are counted, not told apart.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from solvers.recompute.graph.replay import Instance

Key = tuple[object, ...]
Terms = dict[Key, int]


@dataclass(frozen=True)
class Shape:
    """Where to cut, what to look at closely, and what to count.

    `cut` is the stage whose allocation is looked at; in the stages `first`…`last` around it the ops `explicit` have
    their own retention and recomputation; `groups` holds layers, each a list of ops that first run before `first`;
    `zones` are the last stages of intervals behind the cut, in whose communications recomputation is hidden.
    """

    cut: int
    first: int
    last: int
    explicit: tuple[int, ...]
    groups: tuple[tuple[tuple[int, ...], ...], ...]
    zones: tuple[int, ...]
    peaks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Row:
    """lower ≤ Σ terms (≤ upper, where there is one); `elastic`: a row that a dead end of the search may break."""

    terms: Terms
    lower: int | None
    upper: int | None
    elastic: bool = False


@dataclass(frozen=True)
class Column:
    """0 ≤ x ≤ upper, an integer, at this cost in microseconds."""

    upper: int
    cost: int


class CutRelaxation:
    """Model K of one shape: columns and rows by their keys, as the README names them."""

    def __init__(self, given: Instance, shape: Shape) -> None:
        self.given, self.shape = given, shape
        self.columns: dict[Key, Column] = {}
        self.rows: dict[Key, Row] = {}
        self.covers: dict[tuple[int, int], Terms] = defaultdict(dict)
        self._lower_bytes: Terms = {}
        self._counted: set[int] = set()
        self._prefetched: dict[int, Terms] = defaultdict(dict)
        self._shared: dict[int, Terms] = defaultdict(dict)
        for number in range(len(shape.groups)):
            self._group(number)
        self._stages()

    @cached_property
    def deadlines(self) -> list[int]:
        """By op up to the cut: the stage before which it must be there again, −1 if it is never needed."""
        return self._deadlines(self.shape.cut)

    def _deadlines(self, cut: int) -> list[int]:
        given = self.given
        found = [-1] * (cut + 1)
        for i in range(cut, -1, -1):
            later = [user for user in given.users[i] if user > cut]
            again = (found[user] for user in given.users[i] if given.replay[user])
            found[i] = min(later) if later else max(again, default=-1)
        return found

    def windows(self, zone: int) -> list[int]:
        """The communications of a zone, behind the cut."""
        lower = self.shape.zones[zone - 1] if zone else self.shape.cut
        return [t for t in range(lower + 1, self.shape.zones[zone] + 1) if self.given.comm[t]]

    # -- the counted layers

    def _group(self, g: int) -> None:
        given, layers = self.given, self.shape.groups[g]
        for k, members in enumerate(zip(*layers, strict=True)):
            time, count = min(given.time[i] for i in members), len(members)
            self.columns["y", g, k] = Column(self._replaying(members), time)
            self.columns["z", g, k] = Column(count, 0)
            needed = sum(any(user > self.shape.cut for user in given.users[i]) for i in members)
            if needed:
                self._row(("need", g, k), {("z", g, k): 1}, lower=needed, elastic=True)
            self._row(("own", g, k), {("z", g, k): 1, ("y", g, k): -1}, lower=0)
            for j in self._inner_inputs(layers, k):
                self._row(("input", g, k, j), {("z", g, j): 1, ("y", g, k): -1}, lower=0)
            if count > 1 or members[0] not in given.inputs[self.shape.cut]:
                size = min(given.size[i] for i in members)
                self._counted.update(members)
                self._lower_bytes["z", g, k], self._lower_bytes["y", g, k] = size, -size
            self._hidden(g, k, members, time)
            self._before_the_cut(g, k, members, time)

    def _replaying(self, members: tuple[int, ...]) -> int:
        """How many of them can run again at all."""
        return sum(self.given.replay[i] for i in members)

    def _inner_inputs(self, layers: tuple[tuple[int, ...], ...], k: int) -> list[int]:
        """The ops of the layer that op k reads, in every layer."""
        places = [{i: j for j, i in enumerate(layer)} for layer in layers]
        read = [
            {place[i] for i in self.given.inputs[layer[k]] if i in place}
            for layer, place in zip(layers, places, strict=True)
        ]
        return sorted(set.intersection(*read))

    def _hidden(self, g: int, k: int, members: tuple[int, ...], time: int) -> None:
        """How many of them are hidden in each zone before their deadline."""
        given = self.given
        if time == 0 or all(given.comm[i] for i in members):
            return
        deadline = max(self.deadlines[i] for i in members)
        hidden: Terms = {}
        for zone in range(len(self.shape.zones)):
            if any(t < deadline and given.time[t] >= time for t in self.windows(zone)):
                key: Key = ("h", g, k, zone)
                self.columns[key] = Column(self._replaying(members), -time)
                self.covers[zone, time][key] = 1
                hidden[key] = -1
                for t in self._explicit_windows(zone):
                    self._shared[t][key] = time
        if hidden:
            self._row(("hide", g, k), {("y", g, k): 1, **hidden}, lower=0)

    def _before_the_cut(self, g: int, k: int, members: tuple[int, ...], time: int) -> None:
        """Computed again in first…cut: then present at the cut, though perhaps not before."""
        given, shape = self.given, self.shape
        if shape.first == shape.cut:
            return
        size, count = max(given.size[i] for i in members), self._replaying(members)
        self.columns["e", g, k] = Column(count, time)
        for t in range(shape.first, shape.cut):
            self._prefetched[t]["e", g, k] = -size
        for window in range(shape.first, shape.cut + 1):
            if given.comm[window] and given.time[window] >= time and not all(given.comm[i] for i in members):
                key: Key = ("q", g, k, window)
                self.columns[key] = Column(count, 0)
                self._shared[window][key] = time
                for t in range(shape.first, window):
                    self._prefetched[t][key] = -size

    # -- the stages around the cut

    def _stages(self) -> None:
        shape, given = self.shape, self.given
        explicit = set(shape.explicit)
        useful = self._useful_until(explicit)
        for t in range(shape.first, shape.last + 2):
            for i in shape.explicit:
                if i < t <= useful[i]:
                    self.columns["s", t, i] = Column(1, 0)
                    long = given.comm[t] and (given.comm[i] or given.time[i] > given.time[t])
                    if t <= shape.last and not long and given.may_replay(t, i):
                        self.columns["r", t, i] = Column(1, 0 if given.comm[t] else given.time[i])
        for t in range(shape.first, shape.last + 1):
            self._retention(t)
            self._inputs(t, explicit)
            self._window(t)
            self._memory(t, explicit)
        for x in shape.peaks:
            self._later(x, explicit)

    def _useful_until(self, explicit: set[int]) -> dict[int, int]:
        """By op: the last stage in which it, or something recomputed from it, is read."""
        found: dict[int, int] = {}
        for i in sorted(explicit, reverse=True):
            users = self.given.users[i]
            again = (found.get(user, self.shape.last + 1) for user in users if self.given.replay[user])
            found[i] = max(max(users, default=-1), max(again, default=-1))
        return found

    def _retention(self, t: int) -> None:
        """S[t+1,i] ≤ S[t,i] + R[t,i], and not both kept and computed again."""
        for i in self.shape.explicit:
            now: Terms = {key: 1 for key in (("s", t, i), ("r", t, i)) if key in self.columns}
            if i != t and ("s", t + 1, i) in self.columns:
                self._row(("keep", t, i), {**now, ("s", t + 1, i): -1}, lower=0)
            if len(now) == 2:
                self._row(("once", t, i), dict(now), upper=1)

    def _inputs(self, t: int, explicit: set[int]) -> None:
        """What op t, and what is recomputed in stage t, reads is there."""
        given = self.given
        for j in given.inputs[t]:
            if j in explicit:
                there: Terms = {("s", t, j): 1}
                if not given.comm[t] and ("r", t, j) in self.columns:
                    there["r", t, j] = 1
                self._row(("read", t, j), there, lower=1, elastic=True)
        for i in self.shape.explicit:
            if ("r", t, i) in self.columns:
                for j in given.inputs[i]:
                    if j in explicit:
                        source: Terms = {key: 1 for key in (("s", t, j), ("r", t, j)) if key in self.columns}
                        self._row(("from", t, i, j), {**source, ("r", t, i): -1}, lower=0)

    def _window(self, t: int) -> None:
        """What is recomputed in a communication fits into it."""
        if not self.given.comm[t]:
            return
        terms: Terms = {("r", t, i): self.given.time[i] for i in self.shape.explicit if ("r", t, i) in self.columns}
        terms.update(self._shared[t])
        if terms:
            self._row(("window", t), terms, upper=self.given.time[t])

    def _memory(self, t: int, explicit: set[int]) -> None:
        """In use when op t is allocated in stage t: it, its inputs, what stage t + 1 finds, and the counted layers."""
        given, cut = self.given, self.shape.cut
        own = {t, *given.inputs[t]}
        constant = given.static + sum(given.size[i] for i in own if i in explicit or i not in self._counted)
        terms: Terms = {
            ("s", t + 1, i): given.size[i]
            for i in self.shape.explicit
            if i not in own and ("s", t + 1, i) in self.columns
        }
        if t <= cut:
            terms.update(self._lower_bytes)
            terms.update(self._prefetched[t])
        self._row(("memory", t), terms, upper=given.budget - constant, elastic=True)

    def _later(self, x: int, explicit: set[int]) -> None:
        """What is computed again behind stage x, before it is due: all of it, and what it is computed from.

        Without these rows a linear relaxation would spread one recomputation over many stages, each with little input.
        """
        deadlines, last = self._deadlines(x), self.shape.last
        ops = [i for i in self.shape.explicit if i <= x and deadlines[i] >= 0]
        self.columns |= {("a", x, i): Column(1, 0) for i in ops if self.given.replay[i]}
        for i in ops:
            there: Terms = {key: 1 for key in (("s", x + 1, i), ("a", x, i)) if key in self.columns}
            if any(x < user <= last for user in self.given.users[i]):
                self._row(("later", x, i), there, lower=1, elastic=True)
            if ("a", x, i) not in self.columns:
                continue
            if deadlines[i] <= last:
                again: Terms = {("r", t, i): 1 for t in range(x + 1, deadlines[i] + 1) if ("r", t, i) in self.columns}
                self._row(("again", x, i), {**again, ("a", x, i): -1}, lower=0)
            for j in self.given.inputs[i]:
                if j in explicit:
                    source: Terms = {key: 1 for key in (("s", x + 1, j), ("a", x, j)) if key in self.columns}
                    self._row(("closed", x, i, j), {**source, ("a", x, i): -1}, lower=0)

    def _explicit_windows(self, zone: int) -> Iterator[int]:
        """The one communication of a zone that lies in the looked-at stages: its time is shared with them."""
        windows = self.windows(zone)
        if len(windows) == 1 and windows[0] <= self.shape.last:
            yield windows[0]

    def _row(
        self, key: Key, terms: Terms, lower: int | None = None, upper: int | None = None, elastic: bool = False
    ) -> None:
        self.rows[key] = Row({name: value for name, value in terms.items() if value}, lower, upper, elastic)


def text(key: Iterable[object]) -> str:
    """A key as the certificate writes it."""
    return "/".join(str(part) for part in key)
