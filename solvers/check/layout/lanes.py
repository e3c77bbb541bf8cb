"""When everything of a `layout` decision happens: tasks on five lanes, each as early as it may (formats.md 8.4)."""

from collections import deque
from dataclasses import dataclass

from solvers.check.layout.buffers import Miss, Name, misses_of, passes_of
from solvers.ir.layout import LayoutPlan, LayoutProblem

LANES = ("compute", "in", "out", "cpu")
"""The lanes that run their tasks in the order given here."""
NET = ("gather", "reduce")
"""The queues of the fifth lane: each in the order given here, one against the other by time of issue."""


@dataclass(frozen=True)
class Task:
    """Work of a lane, issued when the tasks before it have ended."""

    name: Name
    time_us: int
    after: tuple[Name, ...]


def end_us(problem: LayoutProblem, plan: LayoutPlan) -> int:
    """The end of everything under a decision that has buffers enough."""
    return max(task_ends(problem, plan).values())


def task_ends(problem: LayoutProblem, plan: LayoutPlan) -> dict[Name, int]:
    """The end of every task: `forward k`, `load n` (the n-th task of its lane), `allreduce c`, and so on."""
    return _Run(_Tasks(problem, plan).lanes).ends()


@dataclass(frozen=True)
class TaskSpan:
    """When a task runs, and on which lane: `what` as in `forward`, of the block or chunk of that number."""

    lane: str
    what: str
    number: int
    start_us: int
    end_us: int


def task_spans(problem: LayoutProblem, plan: LayoutPlan) -> list[TaskSpan]:
    """All tasks that take time, lane by lane in order; gathers and reductions share the lane `net`."""
    tasks = _Tasks(problem, plan)
    ends = _Run(tasks.lanes).ends()
    spans = [
        TaskSpan(
            lane="net" if queue in NET else queue,
            what=task.name[0],
            number=tasks.loaded.get(task.name, task.name[1]),
            start_us=ends[task.name] - task.time_us,
            end_us=ends[task.name],
        )
        for queue, queued in tasks.lanes.items()
        for task in queued
        if task.time_us
    ]
    return sorted(spans, key=lambda span: ((*LANES, "net").index(span.lane), span.start_us))


class _Tasks:
    """The tasks of a step, by lane or queue, in order; `loaded` is the chunk of each load and gather."""

    def __init__(self, problem: LayoutProblem, plan: LayoutPlan) -> None:
        self.problem = problem
        self.plan = plan
        self.persistent = frozenset(plan.persistent)
        self.lanes: dict[str, list[Task]] = {lane: [] for lane in (*LANES, *NET)}
        self.loaded: dict[Name, int] = {}
        self.completed_by: list[list[int]] = [[] for _ in problem.blocks]
        seen: set[int] = set()
        for index, block in enumerate(problem.blocks):
            fresh = [number for number in block.chunks if number not in seen]
            self.completed_by[index] = [number for number in fresh if problem.chunks[number].trainable]
            seen.update(fresh)
        passes = passes_of(problem, plan.persistent)
        for one, misses in zip(passes, misses_of(problem, passes, plan.buffers), strict=True):
            present = [self._load(miss) for miss in misses]
            (self._forward if one.do == "forward" else self._backward)(one.block, present)
        self._updates()

    def _add(self, lane: str, name: Name, time_us: int, *after: Name) -> Name:
        self.lanes[lane].append(Task(name, time_us, after))
        return name

    def _load(self, miss: Miss) -> Name:
        """Load a chunk into its buffer and gather it; returns the task after which it is present."""
        chunk, number = self.problem.chunks[miss.chunk], len(self.lanes["in"])
        freed_by = [] if miss.freed_by is None else [miss.freed_by]
        self.loaded |= {("load", number): miss.chunk, ("gather", number): miss.chunk}
        load = self._add("in", ("load", number), chunk.load_us, *freed_by)
        return self._add("gather", ("gather", number), chunk.gather_us, load)

    def _forward(self, index: int, present: list[Name]) -> None:
        """Wait for the swapped block whose bytes count no more from here on; then swap out this one."""
        block, policies = self.problem.blocks[index], self.plan.policies
        gone = index - 1 - self.problem.interval
        left = [("swap-out", gone)] if gone >= 0 and policies[gone] == "swap" else []
        self._add("compute", ("forward", index), block.forward_us, *present, *left)
        if policies[index] == "swap":
            self._add("out", ("swap-out", index), block.swap_out_us, ("forward", index))

    def _backward(self, index: int, present: list[Name]) -> None:
        """Swap in or compute again first, where the policy says so; then reduce the gradients that are complete."""
        block, policy = self.problem.blocks[index], self.plan.policies[index]
        if policy == "swap":
            near, last = index + self.problem.interval + 1, len(self.problem.blocks) - 1
            room = ("backward", near) if near <= last else ("forward", last)
            swap_in = self._add("in", ("swap-in", index), block.swap_in_us, ("swap-out", index), room)
            present = [*present, swap_in]
        again = block.forward_us if policy == "checkpoint" else 0
        self._add("compute", ("backward", index), again + block.backward_us, *present)
        for number in self.completed_by[index]:
            self._reduce(number, ("backward", index))

    def _reduce(self, number: int, backward: Name) -> None:
        """Exchange a chunk's gradients; those of chunks that do not stay leave the device."""
        chunk = self.problem.chunks[number]
        if number in self.persistent:
            self._add("reduce", ("allreduce", number), chunk.allreduce_us, backward)
        else:
            reduced = self._add("reduce", ("reduce", number), chunk.reduce_us, backward)
            self._add("out", ("offload", number), chunk.offload_us, reduced)

    def _updates(self) -> None:
        """Each chunk after its own gradients, or after all gradients where no update may overlap."""
        reductions = [task.name for task in self.lanes["reduce"]]
        offloads = [task.name for task in self.lanes["out"] if task.name[0] == "offload"]
        every = () if self.problem.overlap_update else (("backward", 0), *reductions[-1:], *offloads[-1:])
        for name in offloads:
            self._add("cpu", ("cpu-update", name[1]), self.problem.chunks[name[1]].cpu_update_us, name, *every)
        for name in reductions:
            if name[0] == "allreduce":
                time_us = self.problem.chunks[name[1]].device_update_us
                self._add("compute", ("device-update", name[1]), time_us, name, *every)


class _Run:
    """Runs the tasks: a lane one at a time, in order, each when it is issued and the lane is free."""

    def __init__(self, lanes: dict[str, list[Task]]) -> None:
        self.waiting = {queue: deque(tasks) for queue, tasks in lanes.items()}
        self.free = dict.fromkeys((*LANES, "net"), 0)
        self.end: dict[Name, int] = {}

    def ends(self) -> dict[Name, int]:
        """The end of every task.

        The network serves first whom was issued first, gathers before reductions where both were issued at once. Where
        nothing but the network can move and only one of its queues has a task whose issue is known, the other queue's
        waits for that one, hence was issued later.
        """
        while any(self.waiting.values()):
            if any([self._advance(lane) for lane in LANES]):
                continue
            gather, reduction = (self._issued(queue) for queue in NET)
            if gather is not None and (reduction is None or gather <= reduction):
                self._start("gather", "net", gather)
            elif reduction is not None:
                self._start("reduce", "net", reduction)
            else:
                raise AssertionError("tasks wait in a circle")
        return self.end

    def _advance(self, lane: str) -> bool:
        """Run as many tasks of the lane as are known to be issued; whether there was one."""
        moved = False
        while (issued := self._issued(lane)) is not None:
            self._start(lane, lane, issued)
            moved = True
        return moved

    def _issued(self, queue: str) -> int | None:
        """When the first task of the queue is issued, if all before it have run."""
        if not self.waiting[queue]:
            return None
        ends = [self.end.get(name) for name in self.waiting[queue][0].after]
        return None if None in ends else max((end for end in ends if end is not None), default=0)

    def _start(self, queue: str, lane: str, issued: int) -> None:
        task = self.waiting[queue].popleft()
        self.free[lane] = self.end[task.name] = max(self.free[lane], issued) + task.time_us
