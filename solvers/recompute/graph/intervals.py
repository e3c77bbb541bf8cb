"""`opt-intervals`: when each output is held, as intervals on one axis of positions, on CP-SAT (README, model I)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.solution import Limits, Status, Watch
from solvers.recompute.graph.answers import Answer, Search, first_plans, trivial, windows_of
from solvers.recompute.graph.replay import Instance, Runs, instance
from solvers.recompute.graph.stages import hideable, latest_dependants

if TYPE_CHECKING:
    from solvers.engines.cpsat import CpAnswer, IntVar, LiteralT


@dataclass(frozen=True)
class OptIntervals:
    """Retention intervals (Moccasin, Bartan et al. 2023) with windows: each op recomputed at most `again` times.

    This is a part of the problem's plans, so its own bound is not the problem's: the answer's bound is the time of each
    op once, and `reason` tells what was proved within the class. Models of more than `most_literals` pairs of an op and
    a window are not built.
    """

    again: int = 1
    most_literals: int = 200_000
    NAME = "opt-intervals"

    def solve(self, problem: RecomputeGraphProblem, limits: Limits, watch: Watch | None = None) -> Answer:
        """The best plan found in the class."""
        search = Search(instance(problem), self.NAME, limits, watch)
        known = trivial(search)
        if known is not None:
            return known
        first_plans(search, windows_of(search.given))
        size = self.again * len(windows_of(search.given)) * len(search.given)
        if size > self.most_literals:
            search.notes.append(f"the model would have some {size} windows to choose, more than {self.most_literals}")
        elif not search.done():
            self._search(search)
        return search.answer()

    def _search(self, search: Search) -> None:
        from solvers.engines.cpsat import solve_cpsat

        model = _Intervals(search.given, self.again)
        if search.runs is not None:
            model.hint(search.runs)
        limits = Limits(
            time_s=max(0.01, search.left_s()),
            work=search.limits.work,
            gap=search.limits.gap,
            threads=search.limits.threads,
            seed=search.limits.seed,
        )
        found = solve_cpsat(model.model, limits, search.observed)
        search.stopped = search.stopped or found.interrupted
        search.engine = found.engine
        kind = f"recompute an op at most {self.again} times"
        if found.objective is not None:
            search.offer(model.recomputed(found))
        if found.status is Status.OPTIMAL:
            search.notes.append(f"optimal within plans that {kind}: {found.objective} us")
        elif found.status is Status.INFEASIBLE:
            search.notes.append(f"no plan fits of those that {kind}")
        elif found.reason:
            search.notes.append(found.reason)


@dataclass(frozen=True)
class _Again:
    """One recomputation: whether it happens, its stage, its first and last position, and windows it may hide in."""

    happens: "IntVar"
    stage: "IntVar"
    start: "IntVar"
    end: "IntVar"
    windows: "dict[int, IntVar]"
    paid: "IntVar"


class _Intervals:
    """The model; step (t, i) has the position t·(n + 1) + i, numbered families as in the README."""

    def __init__(self, given: Instance, again: int) -> None:
        from solvers.engines.cpsat import CpModel

        self.given, self.width = given, len(given) + 1
        self.model: CpModel = CpModel()
        self.last = latest_dependants(given)
        self.sized = [i for i in range(len(given)) if given.size[i] > 0]
        self.ends = {v: self._first(v) for v in self.sized}
        self.copies = {v: self._again(v, again) for v in self.sized}
        self._memory()
        for i in range(len(given)):
            self._uses(i)
        self._windows()
        costs = [(copy.paid, given.time[v]) for v in self.sized for copy in self.copies[v]]
        self.model.minimize(given.base + sum(paid * time for paid, time in costs))

    def _limit(self, v: int) -> int:
        """The last position at which anything may read op v."""
        return self.last[v] * self.width + self.last[v]

    def _first(self, v: int) -> "IntVar":
        """(I1) The first interval runs from step (v, v) to an end."""
        return self.model.new_int_var(v * self.width + v, self._limit(v), f"end{v}")

    def _again(self, v: int, count: int) -> list[_Again]:
        """(I2) Optional further intervals in later stages that still matter, in order of time."""
        stages = [t for t in range(v + 1, self.last[v] + 1) if not self.given.comm[t] or hideable(self.given, t, v)]
        found: list[_Again] = []
        for _ in range(count if stages else 0):
            found.append(self._one_more(v, stages))
        for earlier, later in pairwise(found):
            self.model.add_implication(later.happens, earlier.happens)
            self.model.add(later.start > earlier.end).only_enforce_if(later.happens)
        for copy in found[:1]:
            self.model.add(copy.start > self.ends[v]).only_enforce_if(copy.happens)
        return found

    def _one_more(self, v: int, stages: list[int]) -> _Again:
        from solvers.engines.cpsat import Domain

        model = self.model
        happens, paid = model.new_bool_var(f"again{v}"), model.new_bool_var(f"paid{v}")
        stage = model.new_int_var_from_domain(Domain.from_values(stages), f"stage{v}")
        start = model.new_int_var(0, self._limit(v), f"start{v}")
        model.add(start == stage * self.width + v)
        end = model.new_int_var(0, self._limit(v), f"last{v}")
        model.add(end >= start).only_enforce_if(happens)
        windows = {t: model.new_bool_var(f"in{v},{t}") for t in stages if self.given.comm[t]}
        for t, inside in windows.items():
            model.add(stage == t).only_enforce_if(inside)
            model.add_implication(inside, happens)
        open_stages = Domain.from_values([t for t in stages if not self.given.comm[t]])
        model.add_exactly_one(*windows.values(), paid, happens.negated())
        model.add_linear_expression_in_domain(stage, open_stages).only_enforce_if(paid)
        return _Again(happens, stage, start, end, windows, paid)

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
                length = model.new_int_var(1, self._limit(v) + 1, f"length{v}")
                intervals.append(
                    model.new_optional_interval_var(copy.start, length, copy.end + 1, copy.happens, f"more{v}")
                )
                sizes.append(given.size[v])
        model.add_cumulative(intervals, sizes, given.budget - given.static)

    def _uses(self, i: int) -> None:
        """(I4) Each input is held when op i runs; at the first run of a communication since before its stage."""
        given, width = self.given, self.width
        for j in given.inputs[i]:
            if given.size[j] > 0:
                self._cover(j, i * width + i, i * width if given.comm[i] else None, None)
        for copy in self.copies.get(i, ()):
            for j in given.inputs[i]:
                if given.size[j] > 0:
                    self._cover(j, copy.start, None, copy.happens)

    def _cover(self, j: int, position: "IntVar | int", before: int | None, when: "LiteralT | None") -> None:
        model = self.model
        first = model.new_bool_var("")
        model.add(self.ends[j] >= position).only_enforce_if(first)
        choices: list[LiteralT] = [first]
        for copy in self.copies[j]:
            held = model.new_bool_var("")
            model.add_implication(held, copy.happens)
            model.add(copy.end >= position).only_enforce_if(held)
            model.add(copy.start < (position if before is None else before)).only_enforce_if(held)
            choices.append(held)
        model.add_bool_or([*choices, *([] if when is None else [~when])])

    def _windows(self) -> None:
        """(I5) What is recomputed during a communication takes no longer than it."""
        given = self.given
        for t in windows_of(given):
            inside = [
                (copy.windows[t], given.time[v]) for v in self.sized for copy in self.copies[v] if t in copy.windows
            ]
            if sum(time for _, time in inside) > given.time[t]:
                self.model.add(sum(literal * time for literal, time in inside) <= given.time[t])

    def hint(self, runs: Runs) -> None:
        """Begin from a plan, as far as it is in the class."""
        stages: dict[int, list[tuple[int, int]]] = {v: [] for v in self.sized}
        reads = _last_reads(self.given, runs, self.width)
        for t, run in enumerate(runs):
            for v in run:
                if v in stages:
                    stages[v].append((t, reads.get((t, v), t * self.width + v)))
        for v, found in stages.items():
            self.model.add_hint(self.ends[v], found[0][1])
            for copy, place in zip(self.copies[v], [*found[1:], *[None] * len(self.copies[v])], strict=False):
                self.model.add_hint(copy.happens, place is not None)
                self.model.add_hint(copy.paid, place is not None and not self.given.comm[place[0]])
                if place is not None:
                    self.model.add_hint(copy.stage, place[0])
                    self.model.add_hint(copy.start, place[0] * self.width + v)
                    self.model.add_hint(copy.end, place[1])
                for t, inside in copy.windows.items():
                    self.model.add_hint(inside, place is not None and place[0] == t)

    def recomputed(self, answer: "CpAnswer") -> list[set[int]]:
        """What the solution computes again, by stage."""
        found: list[set[int]] = [set() for _ in range(len(self.given))]
        for v in self.sized:
            for copy in self.copies[v]:
                if answer.holds(copy.happens):
                    found[answer.value(copy.stage)].add(v)
        return found


def _last_reads(given: Instance, runs: Runs, width: int) -> dict[tuple[int, int], int]:
    """(stage, op) of a run → the position of the last step that reads it."""
    latest: dict[int, int] = {}
    reads: dict[tuple[int, int], int] = {}
    for t, run in enumerate(runs):
        for i in sorted(run):
            for j in given.inputs[i]:
                reads[latest[j], j] = t * width + i
            latest[i] = t
    return reads
