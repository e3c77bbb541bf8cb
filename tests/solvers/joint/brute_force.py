"""The meaning of a joint plan (formats.md 14) as a search through all decisions, stage by stage, and tiny instances.

Nothing here knows drafts, runs or gaps. Of two ways to the same sets one is left that is later in every clock: all
times are maxima of sums of earlier ones, so nothing that follows ends sooner for being later.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations

from msgspec.structs import replace

from solvers.ir import JointOp, JointProblem, SwapLink

Clocks = tuple[int, ...]


@dataclass(frozen=True)
class State:
    """Between two stages: `kept` in memory, `host` the ops that are away or leave, `unread` what came back unread.

    `clocks`: now, out lane, in lane, the host, ends of the swap-outs of `host`, ends of the swap-ins of `unread`.
    """

    kept: frozenset[int]
    host: tuple[int, ...]
    unread: tuple[int, ...]
    clocks: Clocks

    @property
    def key(self) -> tuple[object, ...]:
        """What tells states apart beside their clocks."""
        return self.kept, self.host, self.unread


@cache
def optimum(problem: JointProblem, swaps: bool = True, again: bool = True) -> int | None:
    """The least objective of any plan, in µs; None where no plan is valid.

    swaps False: nothing leaves; again False: nothing is computed again.
    """
    search = _Search(problem, swaps, again)
    quick = _best(search, None, 40)  # a few ways only: what is not better than the best of them is left, then
    best = _best(search, quick, None)
    return None if best is None else -(-best // problem.link.ticks)


def _best(search: "_Search", limit: int | None, beam: int | None) -> int | None:
    """The least end of the ways that end by `limit`, in ticks; of the quickest `beam` ways of each stage only."""
    ops, left = search.ops, sum(op.time_us for op in search.ops) * search.unit
    states = [State(frozenset(), (), (), (0, 0, 0, 0))]
    for t, op in enumerate(ops):
        left -= op.time_us * search.unit
        found: dict[tuple[object, ...], list[State]] = {}
        for state in states:
            for after in search.stage(t, state):
                if limit is None or after.clocks[0] + left <= limit:
                    _add(found, after)
        states = sorted((state for group in found.values() for state in group), key=lambda state: state.clocks[0])[
            :beam
        ]
    return min((state.clocks[0] for state in states if not state.host and not state.unread), default=None)


def _add(found: dict[tuple[object, ...], list[State]], state: State) -> None:
    group = found.setdefault(state.key, [])
    if any(all(a <= b for a, b in zip(other.clocks, state.clocks, strict=True)) for other in group):
        return
    group[:] = [other for other in group if any(a < b for a, b in zip(other.clocks, state.clocks, strict=True))]
    group.append(state)


class _Search:
    """The ways from one state to the next; `last[i]` is the latest op that depends on op i, directly or not."""

    def __init__(self, problem: JointProblem, swaps: bool, again: bool) -> None:
        self.problem, self.ops, self.swaps, self.again = problem, problem.ops, swaps, again
        self.unit = problem.link.ticks
        self.last = list(range(len(self.ops)))
        for i in reversed(range(len(self.ops))):
            for j in self.ops[i].inputs:
                self.last[j] = max(self.last[j], self.last[i])

    def stage(self, t: int, state: State) -> Iterator[State]:
        """Everything that may be decided from the end of stage t − 1 to that of stage t."""
        for back in _ordered(state.host):
            held = state.kept | set(back)
            for again in _subsets(i for i in range(t) if i not in held and i not in state.host and self._may(t, i)):
                runs = sorted({t, *again})
                if self._data(t, runs, held) and self._window(t, again):
                    yield from self._ends(t, state, back, held, runs)

    def _may(self, t: int, i: int) -> bool:
        op = self.ops[i]
        useful = self.last[i] >= t  # else nothing that still runs can need it
        return self.again and useful and op.replay and t >= self.problem.replays_from

    def _data(self, t: int, runs: list[int], held: frozenset[int]) -> bool:
        own = self.ops[t].comm
        return all(j in held or (j in runs and not (own and i == t)) for i in runs for j in self.ops[i].inputs)

    def _window(self, t: int, again: tuple[int, ...]) -> bool:
        if not self.ops[t].comm:
            return True
        return (
            not any(self.ops[i].comm for i in again) and sum(self.ops[i].time_us for i in again) <= self.ops[t].time_us
        )

    def _ends(
        self, t: int, state: State, back: tuple[int, ...], held: frozenset[int], runs: list[int]
    ) -> Iterator[State]:
        """What stays and what leaves; then the clocks."""
        read = {j for i in runs for j in self.ops[i].inputs}
        must = {i for i in (*state.unread, *back) if i not in read}  # kept until it is read
        there = sorted(i for i in held | set(runs) if self.last[i] > t)
        if not must <= set(there):
            return
        for staying in _subsets(there):
            for leaving in _ordered(i for i in staying if i not in must) if self.swaps else [()]:
                peak = self._peak(t, held, runs, set(staying))
                if peak > self.problem.budget_bytes:
                    continue
                after = self._clocks(t, state, back, runs, read, peak, leaving, must)
                kept = frozenset(staying) - set(leaving)
                if after is not None and must <= kept:
                    yield State(kept, *after)

    def _peak(self, t: int, held: frozenset[int], runs: list[int], staying: set[int]) -> int:
        ops, present, peak = self.ops, set(held), 0
        for place, i in enumerate(runs):
            present.add(i)
            buffer = ops[t].output_bytes + ops[t].workspace_bytes if ops[t].comm and i < t else 0
            level = sum(ops[j].output_bytes for j in present) + buffer + ops[i].workspace_bytes
            peak = max(peak, self.problem.static_bytes + level)
            later = {j for k in runs[place + 1 :] for j in ops[k].inputs}
            present -= {j for j in (i, *ops[i].inputs) if j not in staying and j not in later}
        return peak

    def _clocks(
        self,
        t: int,
        state: State,
        back: tuple[int, ...],
        runs: list[int],
        read: set[int],
        peak: int,
        leaving: tuple[int, ...],
        must: set[int],
    ) -> tuple[tuple[int, ...], tuple[int, ...], Clocks] | None:
        """Host, unread and clocks after the stage; None where the host is too small."""
        ops, link = self.ops, self.problem.link
        now, out_free, in_free, issued = state.clocks[:4]
        out = dict(zip(state.host, state.clocks[4:], strict=False))
        come = dict(zip(state.unread, state.clocks[4 + len(state.host) :], strict=True))
        now = max([now, *(out.pop(i) for i in back)])
        moments = sorted({now, *(end for end in out.values() if end > now)})
        room = self.problem.budget_bytes - peak
        now = next(m for m in moments if sum(ops[i].output_bytes for i, end in out.items() if end > m) <= room)
        for i in back:
            issued += self.move(i)
            in_free = come[i] = max(in_free, now, issued) + self.latency(i) + link.in_ticks(ops[i].output_bytes)
        now = max([now, *(end for i, end in come.items() if i in read)])
        come = {i: end for i, end in come.items() if i in must}
        shared = self.problem.comm_shares_link and any(ops[i].comm for i in runs)
        now = max(now, out_free, in_free) if shared else now
        now, issued = self._ran(t, runs, now, issued)
        if self.ops[t].sent_us:
            now = out_free = max(now, issued, out_free) + self.unit * self.ops[t].sent_us
        if self.ops[t].sync:
            issued = max([issued, now, *((out_free, in_free) if self.ops[t].sync == "device" else ())])
        if self.ops[t].read_us:
            now = issued = out_free = max(now, issued, out_free) + self.unit * self.ops[t].read_us
        if shared:
            out_free = in_free = now
        for i in leaving:
            issued += self.move(i)
            out_free = out[i] = max(out_free, now, issued) + self.latency(i) + link.out_ticks(ops[i].output_bytes)
        on_host = sum(ops[i].output_bytes for i in {*out, *come})
        if self.problem.host_budget_bytes is not None and on_host > self.problem.host_budget_bytes:
            return None
        host, unread = tuple(sorted(out)), tuple(sorted(come))
        return host, unread, (now, out_free, in_free, issued, *(out[i] for i in host), *(come[i] for i in unread))

    def move(self, i: int) -> int:
        """The host's ticks to issue a transfer of op i's output."""
        return self.unit * self.problem.launch_us * self.ops[i].copies

    def latency(self, i: int) -> int:
        """What its copies beyond the first add to the time of a transfer."""
        return (self.ops[i].copies - 1) * self.problem.link.in_ticks(0)

    def _ran(self, t: int, runs: list[int], start: int, issued: int) -> tuple[int, int]:
        """The end of a stage, and of the host's work for it."""
        if self.ops[t].comm:
            issued += self.unit * self.ops[t].launch_us
            own = max(start + self.unit * self.ops[t].time_us, issued + self.unit * self.ops[t].after_launch_us)
            end, issued = self._in_order(t, [i for i in runs if i != t], start, issued)
            return max(own, end), issued
        return self._in_order(t, runs, start, issued)

    def _in_order(self, t: int, runs: list[int], end: int, issued: int) -> tuple[int, int]:
        for i in runs:
            again = self.ops[i].again_launch_us if i != t else None
            issued += self.unit * (self.ops[i].launch_us if again is None else again)
            end = max(end + self.unit * self.ops[i].time_us, issued + self.unit * self.ops[i].after_launch_us)
            issued = max(issued, end) if self.ops[i].host_waits else issued
        return end, issued


def _subsets(items: "Iterator[int] | list[int] | tuple[int, ...]") -> Iterator[tuple[int, ...]]:
    known = list(items)
    for size in range(len(known) + 1):
        yield from combinations(known, size)


def _ordered(items: "Iterator[int] | tuple[int, ...]") -> Iterator[tuple[int, ...]]:
    for chosen in _subsets(items):
        yield from permutations(chosen)


def training(seed: int) -> JointProblem:
    """Forward and backward of a tiny chain: the backward of an op reads the gradient and what the op read or made."""
    source = random.Random(f"joint {seed}")
    half = 3 if seed % 24 == 8 else 2
    ops: list[JointOp] = []
    for i in range(half):
        ops.append(_op(source, len(ops), (i - 1,) if i else ()))
    if half == 2:
        ops.append(_op(source, 2, (1,)))  # the loss
    for i in reversed(range(half)):
        saved = {i, source.choice([i, max(0, i - 1)])}
        gradient = _op(source, len(ops), tuple(sorted({len(ops) - 1, *saved})))
        ops.append(replace(gradient, output_bytes=source.randint(1, 2)))
    return _budgeted(source, seed, ops)


def general(seed: int, count: int | None = None) -> JointProblem:
    """A random graph of 4 to 6 ops that read one to two earlier ones; some communicate, have workspace, run once."""
    source = random.Random(f"joint general {seed}")
    ops = []
    for t in range(count or (6 if seed % 16 == 1 else source.randint(4, 5))):
        reads = {source.randrange(t) for _ in range(source.randint(1, 2))} if t else set()
        ops.append(_op(source, t, tuple(sorted(reads)), odd=True))
    return _budgeted(source, seed, ops)


def _op(source: random.Random, number: int, inputs: tuple[int, ...], odd: bool = False) -> JointOp:
    return JointOp(
        name=f"op{number}",
        time_us=source.randint(0 if odd else 1, 7),
        output_bytes=source.randint(0 if odd else 1, 6),
        inputs=inputs,
        comm=odd and source.random() < 0.25,
        replay=not odd or source.random() < 0.85,
        workspace_bytes=source.choice([0, 0, 1, 3]) if odd else 0,
    )


def _budgeted(source: random.Random, seed: int, ops: list[JointOp]) -> JointProblem:
    """A budget in the lowest quarter between the least feasible one (at times less) and everything kept."""
    static = source.randint(0, 3)
    last = [max([i, *(u for u, op in enumerate(ops) if i in op.inputs)]) for i in range(len(ops))]
    most = max(
        ops[t].workspace_bytes + sum(op.output_bytes for i, op in enumerate(ops) if i <= t <= last[i])
        for t in range(len(ops))
    )
    least = max(op.workspace_bytes + sum(ops[i].output_bytes for i in {t, *op.inputs}) for t, op in enumerate(ops))
    exact = source.random() < 0.2
    rate = source.choice([400_000, 1_000_000, 3_000_000])
    return JointProblem(
        name=f"tiny-{seed}",
        budget_bytes=max(0, static + source.randint(least - (seed % 9 == 0), max(least, (3 * least + most) // 4))),
        static_bytes=static,
        ops=tuple(ops),
        link=SwapLink(
            out_bytes_per_s=rate,
            in_bytes_per_s=source.choice([rate, 2 * rate]),
            latency_us=1 if exact else source.randint(0, 1),
            latency_ns=source.choice([300, 1000]) if exact else None,
        ),
        replays_from=source.choice([0, 0, 0, 1]),
        host_budget_bytes=source.randint(2, 9) if source.random() < 0.2 else None,
        comm_shares_link=source.random() < 0.4,
    )


def random_problem(seed: int) -> JointProblem:
    """Tiny instances of all sorts, by seed; in one of five launches take time and outputs are several storages.

    In half of these the host waits for some ops, or the device, reads numbers, and is sent something.
    """
    problem = general(seed) if seed % 2 else training(seed)
    return launched(problem, seed) if seed % 5 == 3 else problem


def launched(problem: JointProblem, seed: int) -> JointProblem:
    """The same on a host that is busy with launches, more in some ops than in others."""
    names = "launched", "waiting", "syncing", "sending"
    source, waiting, syncing, sending = (random.Random(f"{name} {seed}") for name in names)
    share = waiting.choice([0, 0.3])
    ops = tuple(
        replace(
            op,
            launch_us=source.choice([0, 1, 3, 9]),
            tail_us=source.choice([None, source.randint(0, op.time_us)]),
            copies=source.choice([1, 1, 2]),
            again_launch_us=source.choice([None, None, 0, 5]),
            host_waits=not op.comm and waiting.random() < share,
            read_us=waiting.randint(1, 4) if not op.comm and waiting.random() < share else 0,
            sync=syncing.choice([None, "stream", "device"]) if not op.comm and share else None,
            sent_us=sending.choice([0, 0, 3]) if not op.comm and share else 0,
        )
        for op in problem.ops
    )
    return replace(problem, ops=ops, launch_us=source.randint(0, 3))


def ample(problem: JointProblem) -> JointProblem:
    """The same with all the memory that one may want."""
    return replace(problem, budget_bytes=2**40)
