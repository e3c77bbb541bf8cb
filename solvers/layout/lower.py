"""From a layout plan to one rank's schedule: passes, chunks in named buffers, swaps, updates (formats.md 11.10)."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from solvers.ir.fields import require
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.ir.schedule import Action, Do, Schedule
from solvers.layout.evaluate import Instance, Move, instance, least_buffers, moves

LANES = ("in", "comm", "compute", "out", "host")
"""Of actions that may come next for the same pass, the first lane's does."""


def lower(problem: LayoutProblem, plan: LayoutPlan) -> Schedule:
    """The schedule that carries a valid plan out; raises `InvalidProblem` where the plan is none of this problem's.

    It takes the plan's objective, with the network's tasks in the order in which the lanes of 8.4 serve them. Every
    wait is needed: what the order of lanes or another wait says already is no `after`.
    """
    given = instance(problem)
    require_plan(given, plan)
    drafts = _Step(given, plan).drafts()
    return Schedule(lanes=tuple(f"0.{lane}" for lane in sorted(drafts)), actions=_in_order(drafts))


def require_plan(given: Instance, plan: LayoutPlan) -> None:
    """Refuse what has no schedule (what a valid plan is, the judge says)."""
    blocks, chunks = len(given.problem.blocks), len(given.problem.chunks)
    require(
        len(plan.policies) == blocks and all(chunk < chunks for chunk in plan.persistent),
        f"the plan has {len(plan.policies)} policies and the persistent chunks {list(plan.persistent)[-20:]}, the "
        f"problem {blocks} blocks and {chunks} chunks: give a plan of this problem",
    )
    least = least_buffers(given, plan.persistent)
    require(
        plan.buffers >= least, f"the plan has {plan.buffers} buffers, but its passes need {least}: give a valid plan"
    )


@dataclass(eq=False)
class _Draft:
    """An action before its waits are known to be needed; `needs` are all that must have ended when it starts."""

    do: Do
    at: int | None
    data: tuple[str, ...]
    bytes: int
    needs: list["_Draft"] = field(default_factory=list)


class _Step:
    """The actions of a step by lane, in order; `there` are those after which each chunk is present.

    Pass p of N blocks is the forward of block p or the backward of block 2N − 1 − p.
    """

    def __init__(self, given: Instance, plan: LayoutPlan) -> None:
        self.given, self.problem, self.plan = given, given.problem, plan
        self.count, self.persistent = len(given.problem.blocks), set(plan.persistent)
        self.lanes: dict[str, list[_Draft]] = {lane: [] for lane in LANES}
        self.moves = moves(given, plan)
        self.wanted: dict[int, list[Move]] = defaultdict(list)
        self.evicted: dict[int, list[int]] = defaultdict(list)
        for move in self.moves:
            if move.at is not None:
                self.wanted[move.at].append(move)
            if move.gone is not None and move.gone_after is not None:
                self.evicted[move.gone_after].append(move.gone)
        self.buffer: dict[int, int] = {}
        self.taken = 0
        self.passes: list[_Draft] = []
        self.gathers: dict[tuple[int, int], _Draft] = {}
        self.emptied: dict[int, _Draft] = {}
        self.gradients: dict[int, _Draft] = {}
        self.swapped_out: dict[int, _Draft] = {}
        self.released: dict[int, _Draft] = {}

    def drafts(self) -> dict[str, list[_Draft]]:
        """All actions: what lies on the device, the passes in order, then the updates."""
        always = [*map(_chunk, self.plan.persistent), *(f"buffer {n}" for n in range(self.plan.buffers))]
        beside = sum(self.problem.chunks[chunk].persistent_bytes for chunk in self.plan.persistent)
        self._do("compute", "load", None, always, len(always) * self.problem.chunk_bytes + beside)
        for number in range(2 * self.count):
            self._pass(number)
        self.lanes["comm"] = [self._served(move) for move in self.moves] if self.problem.ranks > 1 else []
        self._updates()
        return self.lanes

    def _do(
        self, lane: str, do: Do, at: int | None, data: Iterable[str], size: int, needs: Iterable[_Draft] = ()
    ) -> _Draft:
        draft = _Draft(do, at, tuple(data), size, list(needs))
        self.lanes[lane].append(draft)
        return draft

    def _pass(self, number: int) -> None:
        """Bring what is missing, run the block, and let go of what leaves now."""
        forward = number < self.count
        block = number if forward else 2 * self.count - 1 - number
        needs = [self._load(move) for move in self.wanted[number]]
        if forward:
            self._forward(block, needs)
        else:
            self._backward(block, needs)
        self._evict(number, self.evicted[number])
        self._empty(number, block)

    def _forward(self, block: int, needs: list[_Draft]) -> None:
        """Release the swapped block whose bytes count no more from here on; swap this one out after it ran."""
        size, policy = self.problem.blocks[block], self.plan.policies[block]
        gone = block - 1 - self.problem.interval
        if gone in self.swapped_out:
            self._release("compute", gone, block)
        held = size.input_bytes if policy == "checkpoint" else size.activation_bytes
        self.passes.append(self._do("compute", "compute", block, [_block(block)], held, needs))
        if policy == "swap":
            left = self._do("out", "swap_out", block, [_block(block)], size.activation_bytes, [self.passes[-1]])
            self.swapped_out[block] = left

    def _backward(self, block: int, needs: list[_Draft]) -> None:
        """Swap in or compute again first, where the policy says so; then exchange the gradients that are complete."""
        at, policy = 2 * self.count - 1 - block, self.plan.policies[block]
        size = self.problem.blocks[block].activation_bytes
        if policy == "swap":
            before = max(self.count, at - self.problem.interval)
            if block not in self.released:
                self._release("in", block, before)
            waits = [self.released[block], self.passes[before - 1]]
            needs = [*needs, self._do("in", "swap_in", before, [_block(block)], size, waits)]
        if policy == "checkpoint":
            self._do("compute", "recompute", at, [_block(block)], size, needs)
            needs = []
        self.passes.append(self._do("compute", "compute", at, [_block(block)], 0, needs))
        for chunk in self.given.completes[block]:
            self.gradients[chunk] = self.passes[-1]
            if self.problem.ranks > 1:
                needed = [self.passes[-1]]
                size = self.problem.chunk_bytes
                self.gradients[chunk] = _Draft("collective_start", at, (f"gradients {chunk}",), size, needed)

    def _release(self, lane: str, block: int, before: int) -> None:
        size, left = self.problem.blocks[block].activation_bytes, self.swapped_out[block]
        self.released[block] = self._do(lane, "release", before, [_block(block)], size, [left])

    def _load(self, move: Move) -> _Draft:
        """Bring a chunk into a buffer; returns the action after which it is present."""
        chunk, size, needs = move.chunk, self.problem.chunk_bytes, []
        if move.gone is None:
            self.buffer[chunk], self.taken = self.taken, self.taken + 1
        else:
            self.buffer[chunk] = self.buffer[move.gone]
            needs = [self.emptied[move.gone]]
        present = self._do("in", "load", move.at, [_chunk(chunk), f"buffer {self.buffer[chunk]}"], size, needs)
        if self.problem.ranks > 1:
            present = _Draft("collective_start", move.at, (_chunk(chunk),), size, [present])
            assert move.at is not None, "a load is for a pass"
            self.gathers[move.at, chunk] = present
        return present

    def _evict(self, number: int, chunks: Iterable[int]) -> None:
        """Give their buffers free: nothing moves, since the host has them."""
        for chunk in chunks:
            data = [_chunk(chunk), f"buffer {self.buffer[chunk]}"]
            self.emptied[chunk] = self._do("compute", "evict", number, data, self.problem.chunk_bytes)

    def _empty(self, number: int, block: int) -> None:
        """Empty the buffers of chunks that no later pass asks for; gradients leave for the host."""
        for chunk in self.problem.blocks[block].chunks:
            if self.given.asked[chunk][-1] != number or chunk in self.persistent:
                continue
            if not self.problem.chunks[chunk].trainable:
                self._evict(number, [chunk])
                continue
            data = [_chunk(chunk), f"buffer {self.buffer[chunk]}"]
            ready = [self.gradients[chunk]]
            self.emptied[chunk] = self._do("out", "evict", number, data, self.problem.chunk_bytes, ready)

    def _served(self, move: Move) -> _Draft:
        return self.gradients[move.chunk] if move.at is None else self.gathers[move.at, move.chunk]

    def _updates(self) -> None:
        """Each chunk after its own gradients, or after all gradients where no update may overlap."""
        every: list[_Draft] = []
        if not self.problem.overlap_update:
            away = [self.emptied[chunk] for chunk in self.gradients if chunk not in self.persistent]
            every = [self.passes[-1], *[*self.gradients.values()][-1:], *away[-1:]]
        for chunk in self.gradients:
            lane = "compute" if chunk in self.persistent else "host"
            own = self.gradients[chunk] if chunk in self.persistent else self.emptied[chunk]
            self._do(lane, "update", self.given.asked[chunk][-1], [_chunk(chunk)], 0, [own, *every])


def _chunk(number: int) -> str:
    return f"chunk {number}"


def _block(number: int) -> str:
    return f"block {number}"


def _in_order(lanes: dict[str, list[_Draft]]) -> tuple[Action, ...]:
    """All lanes in one list, pass by pass, each action after all that it waits for; only waits that say something new.

    `clocks`: how many actions of each lane have ended when an action has. A wait is needed if neither the lane's action
    before nor another wait is behind it already, so that the waits are the only least set that says the same.
    """
    places = {draft: (lane, number) for lane, drafts in lanes.items() for number, draft in enumerate(drafts)}
    clocks: dict[_Draft, dict[str, int]] = {}
    ids: dict[_Draft, int] = {}
    done = dict.fromkeys(lanes, 0)
    actions: list[Action] = []
    while len(actions) < len(places):
        lane, draft = _next(lanes, done, ids)
        before = clocks[lanes[lane][done[lane] - 1]] if done[lane] else {}
        fresh = [need for need in dict.fromkeys(draft.needs) if not _is_behind(before, places[need])]
        needed = [n for n in fresh if not any(o is not n and _is_behind(clocks[o], places[n]) for o in fresh)]
        clock = dict(before)
        for need in needed:
            for name, ended in clocks[need].items():
                clock[name] = max(clock.get(name, 0), ended)
        done[lane] += 1
        clocks[draft] = clock | {lane: done[lane]}
        ids[draft] = len(actions)
        after = tuple(sorted(ids[need] for need in needed))
        action = Action(
            id=ids[draft],
            lane=f"0.{lane}",
            do=draft.do,
            op=draft.at,
            data=draft.data,
            bytes=draft.bytes,
            after=after,
        )
        actions.append(action)
    return tuple(actions)


def _next(lanes: dict[str, list[_Draft]], done: dict[str, int], ids: dict[_Draft, int]) -> tuple[str, _Draft]:
    """Of the lanes' next actions that wait for nothing to come, the one of the earliest pass."""
    heads = [(lane, lanes[lane][done[lane]]) for lane in LANES if done[lane] < len(lanes[lane])]
    ready = [(lane, draft) for lane, draft in heads if all(need in ids for need in draft.needs)]
    return min(ready, key=lambda head: -1 if head[1].at is None else head[1].at)


def _is_behind(clock: dict[str, int], place: tuple[str, int]) -> bool:
    lane, number = place
    return clock.get(lane, 0) > number
