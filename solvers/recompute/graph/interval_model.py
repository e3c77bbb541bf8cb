"""Retention intervals on one axis of positions, for CP-SAT (README, model I).

Importing this module imports CP-SAT: do it where you solve.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from solvers.engines.cpsat import CpAnswer, CpModel, Domain, IntVar, LiteralT
from solvers.recompute.graph.replay import Instance, Runs
from solvers.recompute.graph.stages import latest_dependants, recomputable


@dataclass(frozen=True)
class Again:
    """One recomputation: whether it happens, its stage, first position, length and last position, and its windows."""

    happens: IntVar
    stage: IntVar
    start: IntVar
    length: IntVar
    end: IntVar
    windows: dict[int, IntVar]
    paid: IntVar


@dataclass(frozen=True)
class _Cover:
    """A read of op j at a position (a number, or where a recomputation starts): who holds j then."""

    j: int
    position: int | Again
    before: int | None
    first: IntVar
    others: tuple[IntVar, ...]


class IntervalModel:
    """Plans that recompute op i at most `counts[i]` times; step (t, i) has the position t·(n + 1) + i."""

    def __init__(self, given: Instance, counts: Sequence[int]) -> None:
        self.given, self.width = given, len(given) + 1
        self.model = CpModel()
        self.last = latest_dependants(given)
        self.sized = [i for i in range(len(given)) if given.size[i] > 0]
        self.ends = {v: self._first(v) for v in self.sized}
        self.copies = {v: self._again(v, counts[v]) for v in self.sized}
        self.covers: list[_Cover] = []
        self._memory()
        for i in range(len(given)):
            self._uses(i)
        self._windows()
        costs = [(copy.paid, given.time[v]) for v in self.sized for copy in self.copies[v]]
        self.model.minimize(given.base + sum(paid * time for paid, time in costs))

    def _limit(self, v: int) -> int:
        """The last position at which anything may read op v."""
        return self.last[v] * self.width + self.last[v]

    def _first(self, v: int) -> IntVar:
        """(I1) The first interval runs from step (v, v) to an end."""
        return self.model.new_int_var(v * self.width + v, self._limit(v), f"end{v}")

    def _again(self, v: int, count: int) -> list[Again]:
        """(I2) Optional further intervals in later stages that still matter, in order of time."""
        stages = [t for t in range(v + 1, self.last[v] + 1) if recomputable(self.given, t, v)]
        found = [self._one_more(v, stages) for _ in range(count if stages else 0)]
        for earlier, later in pairwise(found):
            self.model.add_implication(later.happens, earlier.happens)
            self.model.add(later.start > earlier.end).only_enforce_if(later.happens)
        for copy in found[:1]:
            self.model.add(copy.start > self.ends[v]).only_enforce_if(copy.happens)
        return found

    def _one_more(self, v: int, stages: list[int]) -> Again:
        model, limit = self.model, self._limit(v)
        happens, paid = model.new_bool_var(f"again{v}"), model.new_bool_var(f"paid{v}")
        stage = model.new_int_var_from_domain(Domain.from_values(stages), f"stage{v}")
        start, end = model.new_int_var(0, limit, f"start{v}"), model.new_int_var(0, limit, f"last{v}")
        length = model.new_int_var(1, limit + 1, f"length{v}")
        model.add(start == stage * self.width + v)
        windows = {t: model.new_bool_var(f"in{v},{t}") for t in stages if self.given.comm[t]}
        for t, inside in windows.items():
            model.add(stage == t).only_enforce_if(inside)
        open_stages = Domain.from_values([t for t in stages if not self.given.comm[t]])
        model.add_exactly_one(*windows.values(), paid, happens.negated())
        model.add_linear_expression_in_domain(stage, open_stages).only_enforce_if(paid)
        return Again(happens, stage, start, length, end, windows, paid)

    def _memory(self) -> None:
        """(I3) What is held, and the buffer of a running communication, never exceed the room."""
        model, given = self.model, self.given
        intervals, sizes = [], []
        for v in self.sized:
            start = v * self.width + (0 if given.comm[v] else v)
            end = self.ends[v]
            intervals.append(model.new_interval_var(start, end + 1 - start, end + 1, f"first{v}"))
            sizes.append(given.size[v])
            for copy in self.copies[v]:
                held = model.new_optional_interval_var(copy.start, copy.length, copy.end + 1, copy.happens, f"more{v}")
                intervals.append(held)
                sizes.append(given.size[v])
        model.add_cumulative(intervals, sizes, given.budget - given.static)

    def _uses(self, i: int) -> None:
        """(I4) Each input is held when op i runs; at the first run of a communication since before its stage."""
        given, width = self.given, self.width
        for j in given.inputs[i]:
            if given.size[j] > 0:
                self._cover(j, i * width + i, i * width if given.comm[i] else None)
                for copy in self.copies.get(i, ()):
                    self._cover(j, copy, None)

    def _cover(self, j: int, read: "int | Again", before: int | None) -> None:
        model = self.model
        position = read.start if isinstance(read, Again) else read
        first = model.new_bool_var("")
        model.add(self.ends[j] >= position).only_enforce_if(first)
        others = []
        for copy in self.copies[j]:
            held = model.new_bool_var("")
            model.add_implication(held, copy.happens)
            model.add(copy.end >= position).only_enforce_if(held)
            model.add(copy.start < (position if before is None else before)).only_enforce_if(held)
            others.append(held)
        unless: list[LiteralT] = [read.happens.negated()] if isinstance(read, Again) else []
        model.add_bool_or([first, *others, *unless])
        self.covers.append(_Cover(j, read, before, first, tuple(others)))

    def _windows(self) -> None:
        """(I5) What is recomputed during a communication takes no longer than it."""
        given = self.given
        inside: dict[int, list[tuple[IntVar, int]]] = {}
        for v in self.sized:
            for copy in self.copies[v]:
                for t, literal in copy.windows.items():
                    inside.setdefault(t, []).append((literal, given.time[v]))
        for t, found in inside.items():
            if sum(time for _, time in found) > given.time[t]:
                self.model.add(sum(literal * time for literal, time in found) <= given.time[t])

    def recomputed(self, answer: CpAnswer) -> list[set[int]]:
        """What a solution computes again, by stage."""
        found: list[set[int]] = [set() for _ in range(len(self.given))]
        for v in self.sized:
            for copy in self.copies[v]:
                if answer.holds(copy.happens):
                    found[answer.value(copy.stage)].add(v)
        return found

    def around(self, runs: Runs, free: Collection[int] | None = None) -> CpModel:
        """The model begun from a plan of the class; with `free`, all other ops recomputed when the plan does."""
        model, values = self.model.clone(), self._values(runs)
        model.clear_hints()  # type: ignore[no-untyped-call]
        for index, value in values.items():
            model.add_hint(model.get_int_var_from_proto_index(index), value)
        if free is not None:
            for copy in (copy for v in self.sized if v not in free for copy in self.copies[v]):
                model.add(copy.happens == values[copy.happens.index])
                model.add(copy.stage == values[copy.stage.index])
        return model

    def _values(self, runs: Runs) -> dict[int, int]:
        """A plan as values of all variables, by their indices; of a plan outside of the class, what fits."""
        places = self._places(runs)
        values: dict[int, int] = {}
        for v in self.sized:
            values[self.ends[v].index] = places[v][0][1]
            for number, copy in enumerate(self.copies[v]):
                place = places[v][number + 1] if number + 1 < len(places[v]) else None
                values |= self._copy_values(v, copy, place)
        for cover in self.covers:
            self._add_cover_values(cover, values)
        return values

    def _copy_values(self, v: int, copy: Again, place: tuple[int, int] | None) -> dict[int, int]:
        later = (t for t in range(v + 1, self.last[v] + 1) if recomputable(self.given, t, v))
        stage = next(later) if place is None else place[0]
        start = stage * self.width + v
        end = start if place is None else place[1]
        happens = place is not None
        values = {
            copy.happens.index: int(happens),
            copy.stage.index: stage,
            copy.start.index: start,
            copy.end.index: end,
            copy.length.index: end + 1 - start,
            copy.paid.index: int(happens and not self.given.comm[stage]),
        }
        return values | {literal.index: int(happens and t == stage) for t, literal in copy.windows.items()}

    def _add_cover_values(self, cover: _Cover, values: dict[int, int]) -> None:
        read = cover.position
        active = not isinstance(read, Again) or values[read.happens.index] == 1
        position = values[read.start.index] if isinstance(read, Again) else read
        latest = position if cover.before is None else cover.before
        values[cover.first.index] = int(active and values[self.ends[cover.j].index] >= position)
        for copy, held in zip(self.copies[cover.j], cover.others, strict=True):
            inside = values[copy.start.index] < latest and values[copy.end.index] >= position
            values[held.index] = int(active and inside and values[copy.happens.index] == 1)

    def _places(self, runs: Runs) -> list[list[tuple[int, int]]]:
        """By op, the stage of each of its runs and the position of the last step that reads it from there."""
        places: list[list[tuple[int, int]]] = [[] for _ in range(len(self.given))]
        for t, run in enumerate(runs):
            for i in sorted(run):
                for j in self.given.inputs[i]:
                    places[j][-1] = (places[j][-1][0], t * self.width + i)
                places[i].append((t, t * self.width + i))
        return places
