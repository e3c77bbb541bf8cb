"""One rank's compute lane from end to end: which passes run, what they find in memory, and how much there is of it."""

from collections.abc import Iterator
from typing import Literal

from solvers.ir.pipeline import PipelineProblem
from solvers.ir.schedule import Action

LANES = ("compute", "comm", "out", "in")
OF_LANE = {
    "compute": ("compute", "recompute", "collective_wait", "release"),
    "comm": ("collective_start",),
    "out": ("send",),
    "in": ("recv",),
}
Direction = Literal["forward", "backward"]
Key = tuple[int, int]
"""A microbatch and a layer of the stage."""


def form(problem: PipelineProblem, action: Action) -> Iterator[str]:
    """Known actions on the lanes of known ranks, with the numbers that they need."""
    rank, lane = action.lane.split(".")
    place = f"action {action.id}"
    if int(rank) >= len(problem.stages) or lane not in OF_LANE:
        yield f"{place} runs on {action.lane}, but lanes are those of ranks 0…{len(problem.stages) - 1}: {LANES}"
    elif action.do not in OF_LANE[lane]:
        yield f"{place} does {action.do} on {action.lane}, where only {', '.join(OF_LANE[lane])} belong"
    elif action.direction not in ("forward", "backward"):
        yield f"{place} ({action.do}) names no pass"
    elif action.microbatch is None or action.microbatch >= problem.microbatches:
        yield f"{place} is of microbatch {action.microbatch}, but these are 0…{problem.microbatches - 1}"
    elif action.do in ("recompute", "collective_start", "collective_wait") and action.op is None:
        yield f"{place} ({action.do}) names no op"


class Walk:
    """The lane walked: `faults`; `layers` of the rank; first and last action of each pass; waits with their stretch."""

    def __init__(self, problem: PipelineProblem, stage: int, lane: list[Action]) -> None:
        self.problem, self.stage, self.own = problem, stage, problem.stages[stage]
        forward = sum(window.phase == "forward" for window in problem.windows)
        self.steps = {"forward": forward + 1, "backward": len(problem.windows) - forward + 1}
        stretches = [a.op for a in lane if a.do == "compute" and a.direction == "forward" and a.op is not None]
        self.layers = max(stretches, default=-1) // self.steps["forward"] + 1
        self.level = self.own.static_bytes + self.layers * self.own.layer_static_bytes
        self.held: dict[Key, set[int]] = {}
        self.extras: set[int] = set()
        self.begins: dict[tuple[str, int], Action] = {}
        self.ends: dict[tuple[str, int], Action] = {}
        self.waits: list[tuple[Action, Action]] = []
        self.window: tuple[str, int] | None = None
        self.used_us = 0
        self.faults: list[str] = []
        self._run(lane)

    def _run(self, lane: list[Action]) -> None:
        steps, at = self._program(lane), 0
        for action in lane:
            if action.do in ("compute", "collective_wait"):
                name = (action.do, action.direction, action.microbatch, action.op)
                if at >= len(steps) or steps[at] != name:
                    due = "nothing" if at >= len(steps) else steps[at]
                    self.faults.append(f"action {action.id} of rank {self.stage} does {name}, but {due} is due")
                    return
                at += 1
            getattr(self, f"_{action.do}")(action)
            if self.level > self.own.budget_bytes:
                self.faults.append(
                    f"action {action.id} finds {self.level} bytes in use on rank {self.stage}, "
                    f"budget {self.own.budget_bytes}"
                )
            if len(self.faults) > 9:
                return
        if at < len(steps):
            self.faults.append(f"rank {self.stage} ends before {steps[at]}")
        elif self.held or self.extras:
            self.faults.append(f"rank {self.stage} never releases what it holds of {sorted(self.held)[:3]}")

    def _program(self, lane: list[Action]) -> list[tuple[str, object, int | None, int | None]]:
        """What the lane must compute and wait for, in order, its passes in the order in which it begins them."""
        order: list[tuple[Direction, int]] = []
        for action in lane:
            one = action.direction, action.microbatch
            if action.do == "compute" and one not in order[-1:] and one not in self.begins:
                order.append(one)  # type: ignore[arg-type]
                self.begins[one] = action  # type: ignore[index]
            if action.do == "compute":
                self.ends[one] = action  # type: ignore[index]
        every = {(way, m) for way in ("forward", "backward") for m in range(self.problem.microbatches)}
        if set(order) != every:
            self.faults.append(f"rank {self.stage} runs {len(order)} passes, but {len(every)} are due")
        if any(("forward", m) not in order[: order.index((way, m))] for way, m in order if way == "backward"):
            self.faults.append(f"rank {self.stage} goes back with a microbatch that has not come forward")
        return [step for way, m in order for step in self._pass(way, m)]

    def _pass(self, way: Direction, m: int) -> Iterator[tuple[str, object, int | None, int | None]]:
        """Embedding or head, and the layers' stretches with the waits for collectives between them."""
        extra = ("compute", way, m, None)
        has = any(self.own.extra_us) or self.own.extra_bytes
        first = (way == "forward") == (self.stage == 0)
        if has and first:
            yield extra
        layers = range(self.layers) if way == "forward" else reversed(range(self.layers))
        for layer in layers:
            for step in range(self.steps[way]):
                op = layer * self.steps[way] + step
                yield "compute", way, m, op
                if step + 1 < self.steps[way]:
                    yield "collective_wait", way, m, op
        if has and not first:
            yield extra

    def _compute(self, action: Action) -> None:
        """What a forward pass keeps; a backward pass finds all that it reads."""
        self.latest = action
        m, op, ways = action.microbatch or 0, action.op, self.steps[str(action.direction)]
        if op is None:
            expected = self.own.extra_bytes if action.direction == "forward" else 0
            self._expect(action, expected)
            if action.direction == "forward" and self.own.extra_bytes:
                self.extras.add(m)
        elif action.direction == "forward" and op % ways == 0:
            kept = self._ops(action, op // ways)
            self._expect(action, self.problem.layer_input_bytes + self._size(kept))
            self.held[m, op // ways] = kept
        else:
            self._expect(action, 0)
            if op % ways == 0:
                missing = {i for i, one in enumerate(self.problem.ops) if one.needed}
                missing -= self.held.get((m, op // ways), set())
                if missing:
                    self.faults.append(
                        f"action {action.id} reads ops {sorted(missing)} of its layer: they are not there"
                    )
        if action.op is not None and op is not None and op % ways + 1 < ways:
            self.window, self.used_us = (str(action.direction), op % ways), 0

    def _collective_wait(self, action: Action) -> None:
        """The recomputation before it fits into its window."""
        self.waits.append((action, self.latest))
        way, step = self.window or ("forward", 0)
        number = step + (self.steps["forward"] - 1 if way == "backward" else 0)
        limit = self.problem.windows[number].time_us
        if self.used_us > limit:
            self.faults.append(
                f"before action {action.id} stand {self.used_us} us of recomputation, its window: {limit}"
            )
        self.window = None

    def _recompute(self, action: Action) -> None:
        """Its inputs are there, it is not, and it is no communication inside one."""
        count = len(self.problem.ops)
        layer, i = divmod(action.op or 0, count)
        one, have = self.problem.ops[i], self.held.get((action.microbatch or 0, layer))
        if have is None:
            self.faults.append(f"action {action.id} recomputes for a layer whose input is not there")
            return
        if action.data != (action.op,):
            self.faults.append(f"action {action.id} has data {list(action.data)}, but recomputes {action.op}")
        self._expect(action, one.output_bytes)
        if i in have or not set(one.inputs) <= have:
            what = "it is there already" if i in have else f"its inputs {sorted(set(one.inputs) - have)} are not there"
            self.faults.append(f"action {action.id} recomputes op {i} of layer {layer}, but {what}")
        if self.window is not None:
            self.used_us += one.time_us
            closed = self.window[0] == "forward" and self.stage == len(self.problem.stages) - 1
            if one.comm or closed:
                where = "a forward window of the last stage" if closed else "a communication"
                self.faults.append(f"action {action.id} recomputes op {i} inside {where}")
        have.add(i)

    def _release(self, action: Action) -> None:
        """A layer's all once it has gone back, or some that will be computed again; embedding or head likewise."""
        m = action.microbatch or 0
        if action.op is None:
            self._expect(action, -self.own.extra_bytes)
            self.extras.discard(m)
            return
        have, freed = self.held.get((m, action.op), set()), self._ops(action, action.op)
        whole = (m, action.op) in self.held and freed == have and self._is_back(m, action.op)
        if not freed <= have:
            self.faults.append(f"action {action.id} releases ops {sorted(freed - have)}, which are not there")
        self._expect(action, -(self._size(freed) + (self.problem.layer_input_bytes if whole else 0)))
        have -= freed
        if whole:
            del self.held[m, action.op]

    def _is_back(self, m: int, layer: int) -> bool:
        """Whether the last stretch that ran ended this layer's backward pass."""
        steps = self.steps["backward"]
        last = self.latest
        return (last.direction, last.microbatch, last.op) == ("backward", m, layer * steps + steps - 1)

    def _ops(self, action: Action, layer: int) -> set[int]:
        """The action's data as ops of that layer; others are at fault."""
        count = len(self.problem.ops)
        found = {int(name) - layer * count for name in action.data if isinstance(name, int)}
        if len(found) != len(action.data) or any(not 0 <= i < count for i in found):
            self.faults.append(f"action {action.id} has data {list(action.data)[:5]}, but its layer is {layer}")
            return set()
        return found

    def _size(self, ops: set[int]) -> int:
        return sum(self.problem.ops[i].output_bytes for i in ops)

    def _expect(self, action: Action, change: int) -> None:
        """The action's bytes are what it changes, and the level follows."""
        if action.bytes != abs(change):
            self.faults.append(f"action {action.id} ({action.do}) has {action.bytes} bytes, but it is {abs(change)}")
        self.level += change
