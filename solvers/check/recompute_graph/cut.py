"""The cut relaxation of `recompute-graph` problems: its columns and rows, from the README of solvers/recompute/graph.

A column or row is made when it is asked for, so that a certificate costs no more than what it names.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from solvers.check.keyed import Column, Keyed, Row
from solvers.ir.recompute import RecomputeGraphProblem


@dataclass(frozen=True)
class Shape:
    """Where the relaxation looks closely: the README's cut, first, last, explicit, groups, zones and peaks."""

    cut: int
    first: int
    last: int
    explicit: frozenset[int]
    groups: tuple[tuple[tuple[int, ...], ...], ...]
    zones: tuple[int, ...]
    peaks: frozenset[int]


@dataclass(frozen=True)
class OpClass:
    """Op k of all layers of a group: C, M, M⁺ of the README; `deadline` and `needed` (members) as seen at the cut."""

    members: tuple[int, ...]
    time_us: int
    least_bytes: int
    most_bytes: int
    comm: bool
    deadline: int
    needed: int
    counted: bool
    zones: tuple[int, ...]


class CutRelaxation:
    """Columns and rows by key, for one problem and one shape that fits it."""

    def __init__(self, problem: RecomputeGraphProblem, shape: Shape) -> None:
        self.problem, self.shape, self.ops = problem, shape, problem.ops
        self.inputs = [tuple(sorted(set(op.inputs))) for op in self.ops]
        self.users: list[list[int]] = [[] for _ in self.ops]
        for i, sources in enumerate(self.inputs):
            for j in sources:
                self.users[j].append(i)
        self.last_read = self._last_reads()
        self._deadlines: dict[int, list[int]] = {}
        self.windows = [
            tuple(t for t in range(start + 1, end + 1) if self.ops[t].comm)
            for start, end in zip((shape.cut, *shape.zones), shape.zones, strict=False)
        ]
        self.classes = {
            (g, k): self._class_of(members)
            for g, layers in enumerate(shape.groups)
            for k, members in enumerate(zip(*layers, strict=True))
        }
        self.counted = {i for found in self.classes.values() if found.counted for i in found.members}
        self.hidden = [
            (f"h/{g}/{k}/{zone}", found.time_us, zone) for (g, k), found in self.classes.items() for zone in found.zones
        ]
        """The h columns with their times and zones: the only columns that may cost less than nothing."""
        self.columns: Keyed[Column] = Keyed(self._column_families())
        self.rows: Keyed[Row] = Keyed(self._row_families())

    def window_without_zone(self) -> int | None:
        """A communication behind the last zone in which a class could hide: no column would stand for that."""
        end = self.shape.zones[-1] if self.shape.zones else self.shape.cut
        outside = [t for t in range(end + 1, len(self.ops)) if self.ops[t].comm]
        for found in self.classes.values():
            if not found.comm:
                for t in outside:
                    if self._hides(found.time_us, found.deadline, (t,)):
                        return t
        return None

    def deadline(self, x: int, i: int) -> int:
        """D_x(i): the first user of op i behind stage x, else the latest deadline of its users that replay, else −1."""
        if x not in self._deadlines:
            found = [-1] * (x + 1)
            for j in reversed(range(x + 1)):
                behind = [u for u in self.users[j] if u > x]
                again = (found[u] for u in self.users[j] if self.ops[u].replay)
                found[j] = min(behind) if behind else max(again, default=-1)
            self._deadlines[x] = found
        return self._deadlines[x][i]

    def _last_reads(self) -> list[int]:
        """V(i): the last stage, up to last + 1, in which op i or something recomputed from it may be read."""
        found = [self.shape.last + 1] * len(self.ops)
        for i in sorted(self.shape.explicit, reverse=True):
            found[i] = max((max(u, found[u]) if self.ops[u].replay else u for u in self.users[i]), default=-1)
        return found

    def _class_of(self, members: tuple[int, ...]) -> OpClass:
        x = self.shape.cut
        ops = [self.ops[i] for i in members]
        time, comm = min(op.time_us for op in ops), all(op.comm for op in ops)
        deadline = max(self.deadline(x, i) for i in members)
        return OpClass(
            members=members,
            time_us=time,
            least_bytes=min(op.output_bytes for op in ops),
            most_bytes=max(op.output_bytes for op in ops),
            comm=comm,
            deadline=deadline,
            needed=sum(any(u > x for u in self.users[i]) for i in members),
            counted=len(members) > 1 or members[0] not in self.inputs[x],
            zones=() if comm else tuple(z for z, ts in enumerate(self.windows) if self._hides(time, deadline, ts)),
        )

    def _hides(self, time: int, deadline: int, stages: Iterable[int]) -> bool:
        return any(t < deadline and self.ops[t].time_us >= time for t in stages)

    # Columns: which there are, their upper limits and costs.

    def _column_families(self) -> Mapping[str, tuple[int, Callable[..., Column | None]]]:
        return {
            "s": (2, lambda t, i: Column(1, 0) if self._has_s(t, i) else None),
            "r": (2, lambda t, i: Column(1, self._cost(t, i)) if self._has_r(t, i) else None),
            "y": (2, lambda g, k: self._class_column(g, k, 1)),
            "z": (2, self._all),
            "h": (3, lambda g, k, zone: self._class_column(g, k, -1) if self._has_h(g, k, zone) else None),
            "e": (2, lambda g, k: self._class_column(g, k, 1) if self.shape.first < self.shape.cut else None),
            "q": (3, lambda g, k, t: self._class_column(g, k, 0) if self._has_q(g, k, t) else None),
            "a": (2, lambda p, i: Column(1, 0) if self._has_a(p, i) else None),
        }

    def _class_column(self, g: int, k: int, sign: int) -> Column | None:
        found = self.classes.get((g, k))
        return None if found is None else Column(self._replaying(found), sign * found.time_us)

    def _all(self, g: int, k: int) -> Column | None:
        found = self.classes.get((g, k))
        return None if found is None else Column(len(found.members), 0)

    def _replaying(self, found: OpClass) -> int:
        """How many of its members can run again at all."""
        return sum(self.ops[i].replay for i in found.members)

    def _has_s(self, t: int, i: int) -> bool:
        shape = self.shape
        return shape.first <= t <= shape.last + 1 and i in shape.explicit and i < t <= self.last_read[i]

    def _has_r(self, t: int, i: int) -> bool:
        if t > self.shape.last or not self._has_s(t, i):
            return False
        again, stage = self.ops[i], self.ops[t]
        long = stage.comm and (again.comm or again.time_us > stage.time_us)
        return again.replay and t >= self.problem.replays_from and not long

    def _cost(self, t: int, i: int) -> int:
        return 0 if self.ops[t].comm else self.ops[i].time_us

    def _has_h(self, g: int, k: int, zone: int) -> bool:
        return (g, k) in self.classes and zone in self.classes[g, k].zones

    def _has_q(self, g: int, k: int, t: int) -> bool:
        if not (self.shape.first < self.shape.cut and self.shape.first <= t <= self.shape.cut and self.ops[t].comm):
            return False
        found = self.classes.get((g, k))
        return found is not None and not found.comm and found.time_us <= self.ops[t].time_us

    def _has_a(self, p: int, i: int) -> bool:
        seen = p in self.shape.peaks and i in self.shape.explicit and i <= p
        return seen and self.ops[i].replay and self.deadline(p, i) >= 0

    # Rows, in the README's order.

    def _row_families(self) -> Mapping[str, tuple[int, Callable[..., Row | None]]]:
        return {
            "need": (2, self._need),
            "own": (2, self._own),
            "input": (3, self._input),
            "hide": (2, self._hide),
            "keep": (2, self._keep),
            "once": (2, self._once),
            "read": (2, self._read),
            "from": (3, self._from),
            "window": (1, self._window),
            "memory": (1, self._memory),
            "later": (2, self._later),
            "again": (2, self._again),
            "closed": (3, self._closed),
        }

    def _need(self, g: int, k: int) -> Row | None:
        found = self.classes.get((g, k))
        return None if found is None or not found.needed else Row(found.needed, None, {f"z/{g}/{k}": 1})

    def _own(self, g: int, k: int) -> Row | None:
        return Row(0, None, {f"z/{g}/{k}": 1, f"y/{g}/{k}": -1}) if (g, k) in self.classes else None

    def _input(self, g: int, k: int, j: int) -> Row | None:
        if (g, k) not in self.classes or (g, j) not in self.classes:
            return None
        if not all(layer[j] in self.inputs[layer[k]] for layer in self.shape.groups[g]):
            return None
        return Row(0, None, {f"z/{g}/{j}": 1, f"y/{g}/{k}": -1})

    def _hide(self, g: int, k: int) -> Row | None:
        found = self.classes.get((g, k))
        if found is None or not found.zones:
            return None
        return Row(0, None, {f"y/{g}/{k}": 1} | {f"h/{g}/{k}/{zone}": -1 for zone in found.zones})

    def _inside(self, t: int) -> bool:
        return self.shape.first <= t <= self.shape.last

    def _present(self, t: int, i: int) -> dict[str, int]:
        """s[t,i] + r[t,i], of which what does not exist is 0."""
        weights = {f"s/{t}/{i}": 1} if self._has_s(t, i) else {}
        return weights | ({f"r/{t}/{i}": 1} if self._has_r(t, i) else {})

    def _keep(self, t: int, i: int) -> Row | None:
        if not self._inside(t) or i == t or not self._has_s(t + 1, i):
            return None
        return Row(0, None, self._present(t, i) | {f"s/{t + 1}/{i}": -1})

    def _once(self, t: int, i: int) -> Row | None:
        return Row(None, 1, self._present(t, i)) if self._has_r(t, i) else None

    def _read(self, t: int, j: int) -> Row | None:
        if not self._inside(t) or j not in self.shape.explicit or j not in self.inputs[t]:
            return None
        return Row(1, None, {f"s/{t}/{j}": 1} if self.ops[t].comm else self._present(t, j))

    def _from(self, t: int, i: int, j: int) -> Row | None:
        if not self._has_r(t, i) or j not in self.shape.explicit or j not in self.inputs[i]:
            return None
        return Row(0, None, self._present(t, j) | {f"r/{t}/{i}": -1})

    def _window(self, t: int) -> Row | None:
        if not self._inside(t) or not self.ops[t].comm:
            return None
        weights = {f"r/{t}/{i}": self.ops[i].time_us for i in self.shape.explicit if self._has_r(t, i)}
        for (g, k), found in self.classes.items():
            weights |= {f"h/{g}/{k}/{zone}": found.time_us for zone in found.zones if self.windows[zone] == (t,)}
            weights |= {f"q/{g}/{k}/{t}": found.time_us} if self._has_q(g, k, t) else {}
        return Row(None, self.ops[t].time_us, weights)

    def _memory(self, t: int) -> Row | None:
        if not self._inside(t):
            return None
        here = {t, *self.inputs[t]}
        constant = self.problem.static_bytes + sum(self.ops[i].output_bytes for i in here - self.counted)
        kept = [i for i in self.shape.explicit - here if self._has_s(t + 1, i)]
        weights = {f"s/{t + 1}/{i}": self.ops[i].output_bytes for i in kept}
        if t <= self.shape.cut:
            for (g, k), found in self.classes.items():
                weights |= self._class_memory(t, g, k) if found.counted else {}
        return Row(None, self.problem.budget_bytes - constant, weights)

    def _class_memory(self, t: int, g: int, k: int) -> dict[str, int]:
        """What a class has in memory behind the cut was in memory in stage t too, or was computed again in between."""
        found = self.classes[g, k]
        weights = {f"z/{g}/{k}": found.least_bytes, f"y/{g}/{k}": -found.least_bytes}
        if t < self.shape.cut:
            weights[f"e/{g}/{k}"] = -found.most_bytes
            later = [s for s in range(t + 1, self.shape.cut + 1) if self._has_q(g, k, s)]
            weights |= {f"q/{g}/{k}/{s}": -found.most_bytes for s in later}
        return weights

    def _later(self, p: int, i: int) -> Row | None:
        if p not in self.shape.peaks or i not in self.shape.explicit or i > p:
            return None
        if not any(p < u <= self.shape.last for u in self.users[i]):
            return None
        return Row(1, None, {f"s/{p + 1}/{i}": 1} | self._behind(p, i))

    def _again(self, p: int, i: int) -> Row | None:
        if not self._has_a(p, i) or self.deadline(p, i) > self.shape.last:
            return None
        stages = range(p + 1, self.deadline(p, i) + 1)
        return Row(0, None, {f"r/{t}/{i}": 1 for t in stages if self._has_r(t, i)} | {f"a/{p}/{i}": -1})

    def _closed(self, p: int, i: int, j: int) -> Row | None:
        if not self._has_a(p, i) or j not in self.shape.explicit or j not in self.inputs[i]:
            return None
        kept = {f"s/{p + 1}/{j}": 1} if self._has_s(p + 1, j) else {}
        return Row(0, None, kept | self._behind(p, j) | {f"a/{p}/{i}": -1})

    def _behind(self, p: int, i: int) -> dict[str, int]:
        """a[p,i], where it exists."""
        return {f"a/{p}/{i}": 1} if self._has_a(p, i) else {}
