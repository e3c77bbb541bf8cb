"""Plans of layered graphs: a pattern for every layer, and a window for what can be hidden (README, model P).

A restriction of the problem, stated so that its linear relaxation is tight: what a pattern holds in every stage is
computed beforehand. What it answers is measured by replay; it bounds nothing.

One file: the families of model P in the order of its page.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from solvers.engines import Answer, LinearModel, ModelBuilder, solve
from solvers.engines.model import TOLERANCE, FloatArray
from solvers.engines.reduced import without_fixed
from solvers.ir.solution import Limits, Watch
from solvers.recompute.graph.opt.bound.patterns import Pattern
from solvers.recompute.graph.opt.bound.tree import memory_unit
from solvers.recompute.graph.opt.layers import Layers
from solvers.recompute.graph.opt.planning.profile import ProfiledLayer
from solvers.recompute.graph.replay import Instance, retained

Slot = tuple[int, int, int]
"""Layer, op of the layer, communication stage."""


@dataclass(frozen=True)
class SlotPlan:
    """What is computed again, by stage, and what the model thinks of it (µs over the base)."""

    recomputed: list[set[int]]
    cost_us: float
    x: FloatArray


class SlotModel:
    """Model P for candidate patterns of every layer; ops are hidden in one of the last `depth` windows that fit.

    `interrupted` tells whether Ctrl-C ended one of its solves.
    """

    def __init__(
        self,
        given: Instance,
        layers: Layers,
        candidates: Sequence[Sequence[Pattern]],
        depth: int = 4,
        used: Collection[Slot] = (),
    ) -> None:
        self.given, self.layers, self.depth, self.unit = given, layers, depth, memory_unit(given)
        self.interrupted = False
        self.views = [ProfiledLayer(given, layers, layer) for layer in range(layers.count)]
        self.profiles = [
            [view.profile(pattern, self._next_start(layer)) for pattern in candidates[layer]]
            for layer, view in enumerate(self.views)
        ]
        self.builder = ModelBuilder("slots")
        self.entries: list[tuple[list[int], list[float], float, float]] = []
        self.chosen = [
            self.builder.binaries(len(found), cost=[profile.cost_us for profile in found]).tolist()
            for found in self.profiles
        ]
        self.slots: dict[Slot, int] = {}
        self.by_op: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._slots(set(used))
        for columns in self.chosen:
            self._row(columns, [1.0] * len(columns), 1.0, 1.0)
        self._windows()
        self._hidden()
        self._handed_on()
        self.memory_rows = self._memory()

    def _next_start(self, layer: int) -> int:
        return self.views[layer + 1].start if layer + 1 < self.layers.count else self.layers.end

    # -- columns

    def _slots(self, used: set[Slot]) -> None:
        """Windows before the latest just-in-time stage, the last few of them that are long enough, and those used."""
        given = self.given
        for layer, found in enumerate(self.profiles):
            view = self.views[layer]
            latest: dict[int, int] = {}
            for profile in found:
                for k, stage in profile.again.items():
                    latest[k] = max(latest.get(k, 0), stage)
            for k, stage in latest.items():
                i = view.ops[k]
                if given.comm[i]:
                    continue
                fitting = [w for w in range(self.layers.end, stage) if given.comm[w] and given.time[w] >= given.time[i]]
                near = set(fitting[-self.depth :])
                for w in fitting:
                    if w not in near and (layer, k, w) not in used:
                        continue
                    self.slots[layer, k, w] = self.builder.binary(cost=-given.time[i])
                    self.by_op[layer, k].append(w)

    # -- rows

    def _row(self, columns: list[int], values: list[float], lower: float, upper: float) -> int:
        self.entries.append((columns, values, lower, upper))
        return len(self.entries) - 1

    def _windows(self) -> None:
        """What is hidden in a window fits into it."""
        inside: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (layer, k, w), column in self.slots.items():
            inside[w][self.given.time[self.views[layer].ops[k]]].append(column)
        for w, by_time in inside.items():
            columns = [column for found in by_time.values() for column in found]
            times = [float(spent) for spent, found in by_time.items() for _ in found]
            self._row(columns, times, -np.inf, self.given.time[w])
            self._thresholds(by_time, self.given.time[w])

    def _thresholds(self, by_time: Mapping[int, list[int]], capacity: int) -> None:
        """Beside an op longer than half the window, at most n of those fit that are too long to share it n + 1 times.

        These rows hold for every choice of whole ops, not for every mixture: they make the linear relaxation tighter.
        """
        for long in [spent for spent in by_time if 2 * spent > capacity]:
            rest = capacity - long
            beside = [spent for spent in by_time if rest < spent and 2 * spent <= capacity]
            most = capacity // min(beside) if beside else 1
            longest = [column for spent, found in by_time.items() if spent >= long for column in found]
            others = [column for spent in beside for column in by_time[spent]]
            if len(longest) + len(others) > 1:
                self._row([*longest, *others], [float(most)] * len(longest) + [1.0] * len(others), -np.inf, most)

    def _hidden(self) -> None:
        """Hidden at most once, only where the pattern drops it and needs it later, and only from what is there."""
        for (layer, k), windows in self.by_op.items():
            for w in windows:
                late = [
                    self.chosen[layer][number]
                    for number, profile in enumerate(self.profiles[layer])
                    if profile.again.get(k, -1) > w
                ]
                later = [self.slots[layer, k, other] for other in windows if other >= w]
                self._row([*later, *late], [1.0] * len(later) + [-1.0] * len(late), -np.inf, 0.0)
                for j in self.views[layer].inputs[k]:
                    self._source(self.slots[layer, k, w], w, layer, j)
                for i in self.given.inputs[self.views[layer].ops[k]]:
                    if layer and i in self.views[layer - 1].place:
                        self._source(self.slots[layer, k, w], w, layer - 1, self.views[layer - 1].place[i])

    def _handed_on(self) -> None:
        """A layer whose just-in-time computation begins before its backward pass finds its input there."""
        for layer in range(1, self.layers.count):
            view, below = self.views[layer], self.views[layer - 1]
            for number, profile in enumerate(self.profiles[layer]):
                for k, stage in profile.again.items():
                    if stage < view.start:
                        for i in self.given.inputs[view.ops[k]]:
                            if i in below.place:
                                self._source(self.chosen[layer][number], stage - 1, layer - 1, below.place[i])

    def _source(self, column: int, w: int, owner: int, j: int) -> None:
        """If the column is chosen, op j of the owner is kept, computed before w, or hidden in w or before."""
        there = [
            self.chosen[owner][number]
            for number, profile in enumerate(self.profiles[owner])
            if j not in profile.pattern or profile.again[j] < w
        ]
        if len(there) == len(self.profiles[owner]):
            return
        there += [self.slots[owner, j, window] for window in self.by_op.get((owner, j), ()) if window <= w]
        self._row([column, *there], [1.0] + [-1.0] * len(there), -np.inf, 0.0)

    def _memory(self) -> dict[int, int]:
        """Every stage behind the forward pass: the rest of the graph, the layers not yet reached, those at work."""
        given, count = self.given, self.layers.count
        below = self.below = self._kept_below()
        rest = _rest_bytes(given, self.layers)
        extra: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for (layer, k, w), column in self.slots.items():
            size = given.size[self.views[layer].ops[k]] / self.unit
            until = max(p.again[k] for p in self.profiles[layer] if k in p.again)
            for t in range(w, until):
                extra[t].append((column, size))
        rows = {}
        for t in range(self.layers.end, len(given)):
            waiting = next((layer for layer in range(count - 1, -1, -1) if self._first(layer) > t), -1)
            columns, values = [below[waiting + 1]], [1.0]
            for layer in range(waiting + 1, count):
                for column, profile in zip(self.chosen[layer], self.profiles[layer], strict=True):
                    held = profile.kept_bytes if t < profile.first else profile.held.get(t, 0)
                    if held:
                        columns.append(column)
                        values.append(held / self.unit)
            columns += [column for column, _ in extra[t]]
            values += [value for _, value in extra[t]]
            rows[t] = self._row(columns, values, -np.inf, (given.budget - given.static - rest[t]) / self.unit)
        return rows

    def _first(self, layer: int) -> int:
        return min((profile.first for profile in self.profiles[layer]), default=len(self.given))

    def _kept_below(self) -> list[int]:
        """Columns with the memory that the first n layers keep until their backward pass."""
        columns = self.builder.columns(self.layers.count + 1).tolist()
        self._row([columns[0]], [1.0], 0.0, 0.0)
        for layer in range(self.layers.count):
            kept = [profile.kept_bytes / self.unit for profile in self.profiles[layer]]
            self._row(
                [columns[layer + 1], columns[layer], *self.chosen[layer]],
                [1.0, -1.0, *(-value for value in kept)],
                0.0,
                0.0,
            )
        return [int(column) for column in columns]

    # -- solving

    def start(self, patterns: Sequence[Pattern], hidden: Collection[Slot]) -> tuple[FloatArray, bool]:
        """These patterns, hidden there as far as rows hold; and whether they all do: else engines drop such a start."""
        x = np.zeros(self.model.columns)
        for layer, pattern in enumerate(patterns):
            number = next(n for n, profile in enumerate(self.profiles[layer]) if profile.pattern == pattern)
            x[self.chosen[layer][number]] = 1.0
            x[self.below[layer + 1]] = x[self.below[layer]] + self.profiles[layer][number].kept_bytes / self.unit
        for slot in hidden:
            if slot in self.slots:
                x[self.slots[slot]] = 1.0
        return x, self._uncover(x)

    def placed(self, start: FloatArray, limits: Limits, engine: str, watch: Watch | None) -> SlotPlan | None:
        """The best windows for the patterns that `start` chooses; None if none was found."""
        columns = [column for found in self.chosen for column in found]
        lower, upper = self.model.lower.copy(), self.model.upper.copy()
        lower[columns] = upper[columns] = start[columns]
        answer = solve(replace(self.model, lower=lower, upper=upper), limits, engine, watch, start)
        return self._read(answer, answer.x)

    def planned(self, x: FloatArray) -> SlotPlan:
        """The plan of a point in which every row holds."""
        return SlotPlan(self._plan(x), self.model.objective(x), x)

    def _uncover(self, x: FloatArray) -> bool:
        """Hide less until every row holds; False where that does not help.

        The model asks more than a valid plan must keep, as every layer computes its pattern just in time in it.
        """
        model, saved = self.model, {column: -float(self.model.cost[column]) for column in self.slots.values()}
        while True:
            activity = np.bincount(model.entry_rows, model.row_value * x[model.row_index], model.rows)
            excess = activity - model.row_upper - TOLERANCE * np.maximum(1.0, np.abs(model.row_upper))
            broken = int(np.argmax(excess))
            if excess[broken] <= 0:
                return True
            entries = slice(model.row_start[broken], model.row_start[broken + 1])
            pairs = zip(model.row_index[entries].tolist(), model.row_value[entries].tolist(), strict=True)
            chosen = [column for column, value in pairs if value > 0 and x[column] > 0.5 and column in saved]
            if not chosen:
                return False
            x[min(chosen, key=lambda column: saved[column])] = 0.0

    def improve(
        self,
        start: SlotPlan,
        free: Collection[int],
        limits: Limits,
        engine: str,
        watch: Watch | None,
        room: Mapping[int, int],
    ) -> SlotPlan | None:
        """The best plan in which only the `free` layers differ from `start`."""
        model = self._with_room(room)
        columns = [column for layer, found in enumerate(self.chosen) if layer not in free for column in found]
        columns += [column for (layer, _, _), column in self.slots.items() if layer not in free]
        lower, upper, x = model.lower.copy(), model.upper.copy(), start.x.copy()
        lower[columns] = upper[columns] = x[columns] = np.round(x[columns])
        some, is_open = without_fixed(replace(model, lower=lower, upper=upper))
        answer = solve(some, limits, engine, watch, x[is_open])
        if answer.x is not None:
            x[is_open] = answer.x
        return self._read(answer, x)

    def _with_room(self, room: Mapping[int, int]) -> LinearModel:
        """The model with bytes taken away from stages in which a replay found more than foreseen."""
        upper = self.model.row_upper.copy()
        for t, missing in room.items():
            upper[self.memory_rows[t]] -= missing / self.unit
        return replace(self.model, row_upper=upper)

    def _read(self, answer: Answer, x: FloatArray | None) -> SlotPlan | None:
        self.interrupted = self.interrupted or answer.interrupted
        if answer.objective is None or x is None:
            return None
        return SlotPlan(self._plan(x), answer.objective, x)

    @cached_property
    def model(self) -> LinearModel:
        """All columns and rows."""
        rows, columns, values, lower, upper = [], [], [], [], []
        for number, (places, factors, low, high) in enumerate(self.entries):
            rows += [number] * len(places)
            columns += places
            values += factors
            lower.append(low)
            upper.append(high)
        self.builder.rows(rows, columns, values, lower, upper, count=len(lower))
        return self.builder.build()

    def _plan(self, x: FloatArray) -> list[set[int]]:
        recomputed: list[set[int]] = [set() for _ in range(len(self.given))]
        hidden = {(layer, k): w for (layer, k, w), column in self.slots.items() if x[column] > 0.5}
        for layer, columns in enumerate(self.chosen):
            profile = self.profiles[layer][int(np.argmax(x[columns]))]
            for k, stage in profile.again.items():
                recomputed[hidden.get((layer, k), stage)].add(self.views[layer].ops[k])
        return recomputed


def _rest_bytes(given: Instance, layers: Layers) -> list[int]:
    """By stage: what ops outside the layers hold when op t is allocated, with nothing of them computed again."""
    count = len(given)
    runs = retained(given, [()] * count)
    change = [0] * (count + 1)
    for t, run in enumerate(runs):
        for i, until in run.items():
            if not layers.first <= i < layers.end:
                change[t] += given.size[i]
                change[max(t, until) + 1] -= given.size[i]
    found, level = [], 0
    for t in range(count):
        level += change[t]
        found.append(level)
    return found
