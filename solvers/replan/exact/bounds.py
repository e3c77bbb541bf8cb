"""How many layers a stage can hold if a pipeline is to end in time: a relaxation of F5, for all placements at once.

Stages are counted from the last: stage k = 1…P is followed by k − 1 others. `suffix` is the number of layers of the
stages behind it. README, proofs 1 and 2, derive the families of paths (D counts twice, with its least and its greatest
r; E stands in windows.py, F in turns.py) and why filling is exact for them.

One file: paths, filling along them, and what memory and the running state allow besides are one relaxation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from solvers.ir.replan import ReplanProblem
from solvers.native import extension
from solvers.replan.exact.suffixes import Suffixes
from solvers.replan.exact.turns import Turns
from solvers.replan.exact.windows import Windows

IntArray = npt.NDArray[np.int64]
_MANY = 2**40
"""More layers than any model has: no limit."""
_KEPT = 1024
"""Shapes of pipelines whose paths are remembered."""
_FILLINGS = 8
"""So often stages are filled anew where windows held less than was filled: nearly always enough."""


FILLING = extension("solvers.replan.exact._filling")


@dataclass(frozen=True, eq=False)
class Paths:
    """The paths of all stages of one shape of pipeline, [family, stage k − 1]; none of them may exceed a limit.

    A path through stage k takes fixed + behind · suffix + own · layers; own is nowhere 0 but where behind is.
    """

    problem: ReplanProblem
    depth: int
    microbatches: int

    @cached_property
    def _extra_us(self) -> tuple[IntArray, IntArray]:
        return extras(self.problem, self.depth)

    @cached_property
    def _alone_us(self) -> int:
        """A microbatch's way with its hops."""
        return alone_us(self.problem) + 2 * (self.depth - 1) * self.problem.p2p_us

    @cached_property
    def _tables(self) -> tuple[IntArray, IntArray, IntArray]:
        """The families (A), (C), (B) and twice (D) of README, proof 1; a path that does not exist costs nothing."""
        problem, depth, microbatches = self.problem, self.depth, self.microbatches
        stage, (extra_f, extra_b) = np.arange(1, depth + 1, dtype=np.int64), self._extra_us
        extra, forward, backward = extra_f + extra_b, problem.forward_us, problem.backward_us
        one, alone = forward + backward, self._alone_us
        others, steady = microbatches - 1, np.maximum(microbatches - stage, 0)
        fixed, behind, own = np.zeros((3, 5, depth), dtype=np.int64)
        fixed[0], own[0] = alone + others * extra_b + steady * extra_f, others * backward + steady * forward
        fixed[1], own[1] = alone + others * extra_f + steady * extra_b, others * forward + steady * backward
        if others:  # with a single microbatch (A) is longer than (B)
            fixed[2] = problem.layers * one + 2 * (depth - stage) * problem.p2p_us + microbatches * extra
            fixed[2, :-1] += sum(problem.first_extra_us)
            behind[2], own[2] = -one, one * others
        around = extra + 2 * (stage - 1) * problem.p2p_us
        around[1:] += sum(problem.last_extra_us)
        exists = min(others, depth)  # stages k ≤ m − 1
        for family, sweeps in ((3, 1), (4, others // stage[:exists])):
            stay = others - sweeps * stage[:exists]
            fixed[family, :exists] = alone + sweeps * around[:exists] + stay * extra[:exists]
            behind[family, :exists] = one * sweeps
            own[family, :exists] = one * (stay + sweeps)
        return fixed, behind, own

    @cached_property
    def windows(self) -> Windows | None:
        """The paths to and fro between inner stages."""
        return Windows.of(self.problem, np.add(*self._extra_us), self.microbatches, self._alone_us)

    @cached_property
    def turns(self) -> Turns | None:
        """The paths that turn there and then wait in front, where there are no more microbatches than stages."""
        return Turns.of(self.problem, np.add(*self._extra_us), self.microbatches, self._alone_us)

    @cached_property
    def _free(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self._tables[2] == 0)

    @cached_property
    def _some_free(self) -> bool:
        return bool(self._free.any())

    @cached_property
    def _share_us(self) -> IntArray:
        return np.where(self._free, 1, self._tables[2])

    @cached_property
    def _with_suffix(self) -> list[list[int]]:
        """Behind and own of the families that know a suffix, of each stage."""
        rows: list[list[int]] = np.concatenate([self._tables[1][2:], self._share_us[2:]]).tolist()
        return rows

    def _left(self, limit_us: int) -> IntArray:
        """What the fixed parts leave of the limit; where layers cost nothing, enough for any or for none."""
        left = limit_us - self._tables[0]
        return left if not self._some_free else np.where(self._free, np.where(left >= 0, _MANY, -_MANY), left)

    def table(self, suffix: IntArray, limit_us: int) -> IntArray:
        """The most layers of each stage for each number of layers behind it, [stage k − 1, suffix]."""
        left, few = self._left(limit_us), np.full((self.depth, len(suffix)), _MANY)
        for family in range(len(left)):
            spare = left[family][:, None] - self._tables[1][family][:, None] * suffix
            np.minimum(few, spare // self._share_us[family][:, None], out=few)
        return few

    def most_in_all(self, rooms: IntArray, layers: int, limit_us: int) -> int:
        """The most layers that all stages hold together, each at most its room: `layers`, or less if proven so few."""
        if self.native is not None:
            return int(self.native.most_in_all(rooms, layers, limit_us))
        held = self.filled(rooms, layers, limit_us)[-1]
        if held >= layers and self.turns is not None and not any(self.each_filled(rooms, layers, limit_us)):
            return layers - 1
        return held

    def each_filled(self, rooms: IntArray, layers: int, limit_us: int) -> Iterator[tuple[int, list[int]]]:
        """For each number N of layers of the fullest stage k ≥ m with which all are held: N, and `filled` then."""
        assert self.turns is not None
        front = self.turns.front - 1
        for most in range(min(int(rooms[front:].max()), layers), 0, -1):
            fewer = np.concatenate([rooms[:front], np.minimum(rooms[front:], most)])
            if fewer.sum() < layers:
                break
            held = self.filled(fewer, layers, limit_us, most)
            if held[-1] >= layers:
                yield most, held

    def filled(self, rooms: IntArray, layers: int, limit_us: int, front: int = 0) -> list[int]:
        """The most layers that the last 1…P stages hold together; fewer of them where all hold less than `layers`.

        Filling from the last stage, as full as each can be, is best for this relaxation (README, proof 2). `front`:
        the layers of the fullest stage k ≥ m (0: not known).
        """
        if self.native is None:
            return self.filled_in_python(rooms, layers, limit_us, front)
        held: list[int] = self.native.filled(rooms, layers, limit_us, front)
        return held

    @cached_property
    def native(self) -> Any:
        """The native extension's `Filling` of these paths; None where it was not built."""
        problem = self.problem
        each, first, last = (problem.forward_us, problem.backward_us), problem.first_extra_us, problem.last_extra_us
        shape = self.depth, self.microbatches, problem.layers
        return None if FILLING is None else FILLING.Filling(*shape, each, first, last, problem.p2p_us)

    def filled_in_python(self, rooms: IntArray, layers: int, limit_us: int, front: int = 0) -> list[int]:
        """The same without the native extension."""
        turned = list[list[int]]()
        if front and self.turns is not None:
            spare = self.turns.spare(limit_us, front)
            turned = [spare[: stage + 1, stage].tolist() for stage in range(len(spare))]
        left = self._left(limit_us)
        alone = np.minimum((left[:2] // self._share_us[:2]).min(axis=0), rooms)  # the first two know no suffix
        most = np.arange(layers - len(rooms) + 1, layers + 1)
        still = layers - int(rooms.sum()) + np.cumsum(rooms)  # even if all stages before are full
        stages = [alone.tolist(), still.tolist(), most.tolist(), *left[2:].tolist(), *self._with_suffix]
        held = _filled(stages, [], turned)
        narrow = list[list[int]]()
        for _ in range(_FILLINGS):
            if held[-1] < layers or self.windows is None:
                break
            few = self.windows.most(np.array([0, *held], dtype=np.int64), limit_us)
            lower = few < held
            if not lower.any():
                break
            stages[2] = np.minimum(most, few, out=most).tolist()
            narrow = narrow or self.windows.narrow(limit_us)
            held = _filled_among(stages, narrow, held[: int(lower.argmax())], turned)
        return held


def _turned(most: int, held: list[int], turned: list[list[int]]) -> int:
    """The most that the stages up to the next one hold where turns bind as well."""
    if len(held) >= len(turned):
        return most
    return min(most, *(spare + before for spare, before in zip(turned[len(held)], [*held[::-1], 0], strict=True)))


def _filled_among(
    stages: list[list[int]], narrow: list[list[int]], held: list[int], turned: list[list[int]]
) -> list[int]:
    """The same as `_filled` where the narrowest windows bind as well."""
    for two, three, turns_2, turns_3, stays_2, stays_3, each_2, each_3, *stage in islice(
        zip(*narrow, *stages, strict=True), len(held), None
    ):
        more, fewest, most, b, d, e, behind_b, behind_d, behind_e, own_b, own_d, own_e = stage
        suffix = held[-1] if held else 0
        more = min(
            more,
            (b - behind_b * suffix) // own_b,
            (d - behind_d * suffix) // own_d,
            (e - behind_e * suffix) // own_e,
        )
        before = len(held)
        most = min(
            most,
            suffix + more,
            (two + turns_2 * (held[before - 2] if before > 1 else 0) + stays_2 * suffix) // each_2,
            (three + turns_3 * (held[before - 3] if before > 2 else 0) + stays_3 * suffix) // each_3,
        )
        most = _turned(most, held, turned)
        held.append(most)
        if most < fewest:
            break
    return held


def _filled(stages: list[list[int]], held: list[int], turned: list[list[int]]) -> list[int]:
    """What the last stages hold, as full as each can be, behind those of which it is known; to the end, or too few.

    `stages`: the most of each stage whatever is behind it, the fewest and the most of all up to it, and the families.
    """
    suffix = held[-1] if held else 0
    for more, fewest, most, b, d, e, behind_b, behind_d, behind_e, own_b, own_d, own_e in islice(
        zip(*stages, strict=True), len(held), None
    ):
        more = min(
            more,
            (b - behind_b * suffix) // own_b,
            (d - behind_d * suffix) // own_d,
            (e - behind_e * suffix) // own_e,
        )
        suffix += more
        if suffix > most:
            suffix = most
        suffix = _turned(suffix, held, turned)
        held.append(suffix)
        if suffix < fewest:
            break
    return held


class PathTable:
    """`Paths` of the shapes of one problem's pipelines."""

    def __init__(self, problem: ReplanProblem) -> None:
        self.of = lru_cache(maxsize=_KEPT)(partial(Paths, problem))


def extras(problem: ReplanProblem, depth: int) -> tuple[IntArray, IntArray]:
    """Forward and backward extras of the stages k = 1…P."""
    tables = np.zeros(depth, dtype=np.int64), np.zeros(depth, dtype=np.int64)
    for table, first, last in zip(tables, problem.first_extra_us, problem.last_extra_us, strict=True):
        table[-1] += first
        table[0] += last
    return tables


def alone_us(problem: ReplanProblem) -> int:
    """One microbatch through the whole model, without hops."""
    layers_us = problem.layers * (problem.forward_us + problem.backward_us)
    return layers_us + sum(problem.first_extra_us) + sum(problem.last_extra_us)


class Held(NamedTuple):
    """The fewest and the most layers that the last 0…P stages hold, and the most of each stage k = 1…P."""

    fewest: IntArray
    most: IntArray
    rooms: IntArray


@dataclass(frozen=True, eq=False)
class StageLimits:
    """What memory, time and the running state allow the stages; no stage holds more than `fullest` layers.

    `movable` [layers behind a stage, its own layers] says which stages some node can take over with little enough to
    receive; None: all of them.
    """

    problem: ReplanProblem
    fullest: int
    movable: npt.NDArray[np.bool_] | None = None
    known: tuple[PathTable, Suffixes, Callable[[int, int], IntArray]] | None = None

    @cached_property
    def paths(self) -> PathTable:
        """The paths of every shape, which neither `fullest` nor `movable` changes."""
        return PathTable(self.problem) if self.known is None else self.known[0]

    @cached_property
    def suffixes(self) -> Suffixes:
        """Times of last stages, which neither changes."""
        return Suffixes(self.problem) if self.known is None else self.known[1]

    def limited(self, fullest: int, movable: npt.NDArray[np.bool_] | None) -> "StageLimits":
        """The same problem with other limits."""
        return replace(self, fullest=fullest, movable=movable, known=(self.paths, self.suffixes, self._by_memory))

    def allows(self, layers: Sequence[int]) -> bool:
        """Whether a split keeps to `fullest` and `movable` (memory is another matter)."""
        if max(layers) > self.fullest:
            return False
        if self.movable is None:
            return True
        behind = self.problem.layers - np.cumsum(layers)
        return bool(self.movable[behind, layers].all())

    @cached_property
    def one_us(self) -> int:
        """Forward and backward of one layer."""
        return self.problem.forward_us + self.problem.backward_us

    @cached_property
    def alone_us(self) -> int:
        """One microbatch through the whole model, without hops."""
        return alone_us(self.problem)

    def longest_us(self, layers: Sequence[int]) -> int:
        """Forward and backward of the longest stage."""
        stages = [count * self.one_us for count in layers]
        stages[0] += sum(self.problem.first_extra_us)
        stages[-1] += sum(self.problem.last_extra_us)
        return max(stages)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The depths that nodes and layers allow and some split fits."""
        deepest = min(self.problem.max_depth, self.problem.nodes, self.problem.layers)
        least = -(-self.problem.layers // self.fullest)
        return tuple(depth for depth in range(least, deepest + 1) if self._has_room(depth))

    def _has_room(self, depth: int) -> bool:
        """Whether some split of `depth` stages fits, at least with one microbatch."""
        room = {k: self.room(depth, k, 1) for k in (1, depth, min(2, depth))}  # those between are all alike
        between = room[2] * (depth - 2) if depth > 2 else 0
        return min(room.values()) >= 1 and sum(room[k] for k in {1, depth}) + between >= self.problem.layers

    def room(self, depth: int, k: int, microbatches: int) -> int:
        """The most layers that stage k's node can hold (F8), and `fullest`."""
        problem = self.problem
        free = problem.memory_bytes - problem.first_static_bytes * (depth == k) - problem.last_static_bytes * (k == 1)
        one = problem.layer_static_bytes + min(k, microbatches) * problem.layer_activation_bytes
        return min(free // one if one else (self.fullest if free >= 0 else -1), self.fullest)

    def rooms(self, depth: int, microbatches: int) -> IntArray:
        """`room` of the stages k = 1…P."""
        return self._rooms(depth, min(depth, microbatches))

    @cached_property
    def _rooms(self) -> Callable[[int, int], IntArray]:
        @lru_cache(maxsize=_KEPT)
        def rooms(depth: int, microbatches: int) -> IntArray:
            return np.minimum(self._by_memory(depth, microbatches), self.fullest)

        return rooms

    @cached_property
    def _by_memory(self) -> Callable[[int, int], IntArray]:
        """`rooms` by memory alone."""
        if self.known is not None:
            return self.known[2]
        problem = self.problem

        @lru_cache(maxsize=_KEPT)
        def rooms(depth: int, microbatches: int) -> IntArray:
            waiting = np.minimum(np.arange(1, depth + 1, dtype=np.int64), microbatches)
            each = problem.layer_static_bytes + waiting * problem.layer_activation_bytes
            free = np.full(depth, problem.memory_bytes, dtype=np.int64)
            free[0] -= problem.last_static_bytes
            free[-1] -= problem.first_static_bytes
            if problem.layer_static_bytes:
                return np.asarray(free // each)
            return np.where(each > 0, free // np.maximum(each, 1), np.where(free >= 0, _MANY, -1))

        return rooms

    def held(self, depth: int, microbatches: int, limit_us: int) -> Held | None:
        """What the last stages hold if all end within the limit, as the relaxation says; None: they do not."""
        layers, paths = self.problem.layers, self.paths.of(depth, microbatches)
        rooms = self.rooms(depth, microbatches)
        if paths.native is not None:
            native = paths.native.held(rooms, layers, limit_us)
            return None if native is None else Held(*native)
        filled = paths.filled(rooms, layers, limit_us)
        if filled[-1] < layers:
            return None
        if paths.turns is None:
            most = np.array([0, *filled], dtype=np.int64)
            fewest = np.arange(len(most)) if paths.windows is None else paths.windows.least(most, limit_us)
            return Held(fewest, most, rooms)
        found = [self._held(paths, rooms, limit_us, *one) for one in paths.each_filled(rooms, layers, limit_us)]
        if not found:
            return None
        fewest = np.min([one.fewest for one in found], axis=0)
        most, rooms = (np.max([getattr(one, name) for one in found], axis=0) for name in ("most", "rooms"))
        return Held(fewest, most, rooms)

    def _held(self, paths: Paths, rooms: IntArray, limit_us: int, front: int, filled: list[int]) -> Held:
        """The same where the fullest of the stages k ≥ m holds `front` layers."""
        assert paths.turns is not None
        layers, first, rooms = self.problem.layers, paths.turns.front - 1, rooms.copy()
        np.minimum(rooms[first:], front, out=rooms[first:])
        np.minimum(rooms[:first], paths.turns.spare(limit_us, front)[0], out=rooms[:first])
        most = np.array([0, *filled], dtype=np.int64)
        fewest = np.maximum(np.arange(len(most)), layers - np.append(np.cumsum(rooms[::-1])[::-1], 0))
        if paths.windows is not None:
            np.maximum(fewest, paths.windows.least(most, limit_us), out=fewest)
        return Held(paths.turns.least(fewest, limit_us, front), most, rooms)

    def may_end(self, depth: int, microbatches: int, limit_us: int) -> bool:
        """Whether the relaxation lets pipelines of this shape end within the limit; if not, none does."""
        layers, rooms = self.problem.layers, self.rooms(depth, microbatches)
        return self.paths.of(depth, microbatches).most_in_all(rooms, layers, limit_us) >= layers

    def most_microbatches(self, depth: int, limit_us: int) -> int:
        """No pipeline of this depth counts more within the limit: (D), r = 1, and (A) without rounding (README, 2)."""
        one, layers_us = self.one_us, self.problem.layers * self.one_us
        spare = limit_us - self.alone_us - 2 * (depth - 1) * self.problem.p2p_us
        if spare < 0:
            return 0
        most = self.problem.microbatches
        if one:
            most = min(most, limit_us // (one * -(-self.problem.layers // depth)))
        if spare >= layers_us:
            return min(most, 1 + spare * depth // layers_us) if one else most
        longer = max(self.problem.forward_us, self.problem.backward_us)
        return min(most, 1 + depth * spare * one // ((layers_us - spare) * longer + spare * one))
