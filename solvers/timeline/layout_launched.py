"""A layout schedule as the executor carries it out: a host whose launches take time issues every action in turn.

The lanes of `simulate_layout` begin each action as early as its waits allow. Here an action begins no earlier than the
host has issued it; copies of several storages are as many launches; gradients move into their chunk one by one, and a
chunk leaves as soon as its last one has come.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from solvers.ir.layout import LayoutProblem
from solvers.ir.report import Report, Span
from solvers.ir.schedule import Action, Schedule
from solvers.timeline.cost import Cost, one_launch
from solvers.timeline.layout import simulate_layout

COMPUTE, IN, OUT, HOST = "0.compute", "0.in", "0.out", "0.host"
NS = 1000
"""Nanoseconds a microsecond."""
Piece = tuple[Cost, int | None]
"""A part of a backward pass, and the chunk of which a gradient has come after it."""


@dataclass(frozen=True)
class LayoutCosts:
    """What a plan's actions cost on one rank, by block and by chunk, in nanoseconds.

    `recompute` is what a checkpointed block repeats; `backward` comes in pieces, of which a pass that never begins has
    none. `leaving` and `coming` are the copies of a swapped block's storages, `load_ns`, `offload_ns` and
    `cpu_update_ns` those of chunks and their updates on the host; `device_update` only of persistent chunks.
    `gradients` counts those that a chunk waits for.
    """

    launch_ns: int
    forward: tuple[Cost, ...]
    recompute: tuple[Cost, ...]
    backward: tuple[tuple[Piece, ...], ...]
    leaving: tuple[tuple[int, ...], ...]
    coming: tuple[tuple[int, ...], ...]
    load_ns: tuple[int, ...]
    offload_ns: tuple[int, ...]
    cpu_update_ns: tuple[int, ...]
    device_update: Mapping[int, Cost]
    gradients: tuple[int, ...]


def predict_layout(problem: LayoutProblem, schedule: Schedule, costs: LayoutCosts) -> Report:
    """The report of one rank's schedule with launches; its memory is the schedule's.

    From the begin of forward to the end of the optimizer's step: the host has then waited for its own updates, and the
    device is through with its own.
    """
    plain = simulate_layout(problem, schedule)
    labels = {span.action: span.label for span in plain.spans}
    run = _Run(problem, schedule, costs)
    end = run.end_ns()
    at = {number: (lane, start / NS, stop / NS) for number, (lane, start, stop) in run.spans.items()}
    spans = tuple(
        Span(action=number, lane=lane, label=labels[number], start_us=start, end_us=stop)
        for number, (lane, start, stop) in sorted(at.items())
    )
    return replace(plain, makespan_us=end / NS, spans=spans, stall_us={})


class _Run:
    """The clocks of the host, of the lanes and of the host's worker; `ended` is what the program knows of an action."""

    def __init__(self, problem: LayoutProblem, schedule: Schedule, costs: LayoutCosts) -> None:
        self.problem, self.costs = problem, costs
        self.host = 0
        self.free = {COMPUTE: 0, IN: 0, OUT: 0, HOST: 0}
        self.ended: dict[int, int] = {}
        self.spans: dict[int, tuple[str, int, int]] = {}
        self.lanes: dict[str, deque[Action]] = {lane: deque() for lane in self.free}
        for action in schedule.order():
            self.lanes[action.lane].append(action)
        self.freed_by = _freed_by(schedule)
        self.stays = {_number(action) for action in self.lanes[IN] if action.do == "release"}
        self.loads = deque(action for action in self.lanes[IN] if action.do == "load")
        self.swap_ins = deque(action for action in self.lanes[IN] if action.do == "swap_in")
        self.needed: dict[int, list[int]] = defaultdict(list)
        self.outs = {_number(action): action for action in self.lanes[OUT] if action.do == "swap_out"}
        self.offloads = {_number(action): action for action in self.lanes[OUT] if action.do == "evict"}
        self.updates = {_number(action): action for action in self.lanes[HOST]}
        self.left = Counter[int]()

    def end_ns(self) -> int:
        """Run it all."""
        on_device: list[Action] = []
        for action in self.lanes[COMPUTE]:
            if action.do == "update":
                on_device.append(action)
            elif action.do in ("compute", "recompute") and self._begins(action):
                self._pass(action)
            elif action.do == "release":
                self._waits(COMPUTE, [self.outs[_number(action)].id])
                self._done(action, self._now(COMPUTE))
            else:
                self._done(action, self._now(COMPUTE))
        for chunk in list(self.offloads):
            self._offload(chunk)
        if self.problem.overlap_update:
            self._on_device(on_device)
        self.host = max([self.host, *(self.ended[action.id] for action in self.lanes[OUT])])
        if not self.problem.overlap_update:
            self._on_device(on_device)
        for chunk in list(self.updates):
            self._on_host(chunk, None)
        return max(self.host, self.free[COMPUTE], self.free[HOST])

    def _begins(self, action: Action) -> bool:
        """Nobody comes to the backward of what is not trained, and waits for what the plan loads for it."""
        return (action.op or 0) < len(self.problem.blocks) or bool(self.costs.backward[_number(action)])

    def _now(self, lane: str) -> int:
        """An event recorded on the lane: not before the host comes to it."""
        return max(self.free[lane], self.host)

    def _done(self, action: Action, start: int) -> None:
        self.ended[action.id] = self._now(action.lane) if action.lane != HOST else self.free[HOST]
        self.spans[action.id] = (action.lane, start, max(start, self.free[action.lane]))

    def _waits(self, lane: str, actions: Iterable[int]) -> None:
        self.free[lane] = max([self.free[lane], *(self.ended[before] for before in actions)])

    def _launch(self, lane: str, cost: Cost) -> None:
        self.free[lane] = max(self.free[lane] + cost.device_ns, self.host + cost.end_ns)
        self.host += cost.launch_ns
        if cost.waits:
            self.host = max(self.host, self.free[lane])

    def _pass(self, action: Action) -> None:
        """What may come comes first; then the pass, and what leaves behind it or in it."""
        self._advance()
        while self.swap_ins and self.swap_ins[0].op == action.op:
            self._swap_in(self.swap_ins.popleft())
        self._waits(COMPUTE, self.needed.pop(action.op or 0, ()))
        start, count, number = self.free[COMPUTE], len(self.problem.blocks), _number(action)
        if action.do == "recompute":
            self._launch(COMPUTE, self.costs.recompute[number])
        elif (action.op or 0) < count:
            self._launch(COMPUTE, self.costs.forward[number])
        else:
            self._backward(self.costs.backward[number])
        self._done(action, start)
        if action.do == "compute" and (action.op or 0) < count and number in self.outs:
            self._copies(self.outs[number], () if number in self.stays else self.costs.leaving[number])

    def _backward(self, pieces: Sequence[Piece]) -> None:
        for cost, chunk in pieces:
            self._launch(COMPUTE, cost)
            if chunk is not None:
                self.left[chunk] += 1
                if self.left[chunk] == self.costs.gradients[chunk] and chunk in self.offloads:
                    self._offload(chunk)
                    self._advance()

    def _offload(self, chunk: int) -> None:
        action = self.offloads.pop(chunk)
        self._copies(action, (self.costs.offload_ns[chunk],))
        if self.problem.overlap_update:
            self._on_host(chunk, self.ended[action.id])

    def _copies(self, action: Action, durations: Sequence[int]) -> None:
        """Behind what compute holds now, a launch each."""
        lane = action.lane
        if durations:
            self.free[lane] = max(self.free[lane], self._now(COMPUTE))
        start = self.free[lane]
        for duration in durations:
            self._launch(lane, one_launch(self.costs.launch_ns, duration))
        self._done(action, start)

    def _advance(self) -> None:
        """All chunks whose buffer is free, in order."""
        while self.loads:
            action = self.loads[0]
            before = self.freed_by.get(action.id)
            if before is not None and before not in self.ended:
                return
            self.loads.popleft()
            self._waits(IN, [] if before is None else [before])
            start = self._now(IN)
            self._launch(IN, one_launch(self.costs.launch_ns, self.costs.load_ns[_number(action)]))
            self._done(action, start)
            self.needed[action.op or 0].append(action.id)

    def _swap_in(self, action: Action) -> None:
        number = _number(action)
        self._copies(action, () if number in self.stays else self.costs.coming[number])
        self.needed[2 * len(self.problem.blocks) - 1 - number].append(action.id)

    def _on_device(self, updates: Sequence[Action]) -> None:
        for action in updates:
            start = self._now(COMPUTE)
            self._launch(COMPUTE, self.costs.device_update[_number(action)])
            self._done(action, start)

    def _on_host(self, chunk: int, after: int | None) -> None:
        """The worker takes it when it is free, and when the gradients have come."""
        action = self.updates.pop(chunk, None)
        if action is not None:
            start = max(self.free[HOST], self.host, after or 0)
            self.free[HOST] = start + self.costs.cpu_update_ns[chunk]
            self._done(action, start)


def _freed_by(schedule: Schedule) -> dict[int, int]:
    """The eviction that empties the buffer of each load, where one does."""
    found: dict[int, int] = {}
    emptied: dict[object, int] = {}
    for action in schedule.order():
        if action.do == "evict":
            emptied[action.data[1]] = action.id
        elif action.do == "load" and action.lane == IN and action.data[1] in emptied:
            found[action.id] = emptied[action.data[1]]
    return found


def _number(action: Action) -> int:
    return int(str(action.data[0]).partition(" ")[2])
