"""A layout decision run by a clock that ticks: slots, queues and bytes are looked at in every microsecond."""

from collections.abc import Iterator

from solvers.ir import LayoutPlan, LayoutProblem

Name = tuple[str, int]


def naive_end_us(problem: LayoutProblem, plan: LayoutPlan) -> int | None:
    """The end of everything, or None where a pass finds no slot for a chunk."""
    loads = slot_loads(problem, plan)
    return None if loads is None else Clock(problem, plan, loads).run()


def slot_loads(problem: LayoutProblem, plan: LayoutPlan) -> list[tuple[int, int, Name | None]] | None:
    """Each load in order: its pass, its chunk, and after what its slot is free; None where there is no slot."""
    count = len(problem.blocks)
    passes = [*range(count), *reversed(range(count))]
    wanted = [[c for c in problem.blocks[block].chunks if c not in plan.persistent] for block in passes]
    slots: list[int | None] = [None] * plan.buffers
    since: list[tuple[int, Name | None]] = [(place, None) for place in range(plan.buffers)]
    loads = []
    moves = plan.buffers
    for e, chunks in enumerate(wanted):
        for chunk in chunks:
            if chunk in slots:
                continue
            empty = [place for place, held in enumerate(slots) if held is None]
            if empty:
                place = min(empty, key=lambda place: since[place][0])
                free = since[place][1]
            else:
                victims = []
                for place, held in enumerate(slots):
                    assert held is not None
                    pending = problem.chunks[held].trainable and any(held in one for one in wanted[count:e])
                    if held not in chunks and not pending:
                        victims.append((next(f for f in range(e, 2 * count) if held in wanted[f]), held, place))
                if not victims:
                    return None
                _, gone, place = max(victims)
                last = max(f for f in range(e) if gone in wanted[f])
                free = pass_name(last, count)
            slots[place] = chunk
            loads.append((e, chunk, free))
        for chunk in chunks:
            if not any(chunk in later for later in wanted[e + 1 :]):
                place = slots.index(chunk)
                slots[place] = None
                since[place] = (moves, ("offload", chunk) if problem.chunks[chunk].trainable else pass_name(e, count))
                moves += 1
    return loads


def pass_name(e: int, count: int) -> Name:
    """The compute task of pass e."""
    return ("forward", e) if e < count else ("backward", 2 * count - 1 - e)


class Clock:
    """One lane each for compute, in, out, net and cpu; every task says for what it waits."""

    def __init__(self, problem: LayoutProblem, plan: LayoutPlan, loads: list[tuple[int, int, Name | None]]) -> None:
        self.problem, self.plan, self.loads = problem, plan, loads
        self.count = len(problem.blocks)
        self.done: dict[Name, int] = {}
        self.running: dict[str, tuple[Name, int]] = {}
        swapped = [k for k, policy in enumerate(plan.policies) if policy == "swap"]
        self.reductions = [
            (k, c)
            for k in reversed(range(self.count))
            for c in problem.blocks[k].chunks
            if problem.chunks[c].trainable and not any(c in block.chunks for block in problem.blocks[:k])
        ]
        leaving = [c for _, c in self.reductions if c not in plan.persistent]
        staying = [c for _, c in self.reductions if c in plan.persistent]
        compute = [pass_name(e, self.count) for e in range(2 * self.count)]
        self.queues: dict[str, list[Name]] = {
            "compute": compute + [("device", c) for c in staying],
            "in": list(self._inward(swapped)),
            "out": [("swap-out", k) for k in swapped] + [("offload", c) for c in leaving],
            "cpu": [("cpu", c) for c in leaving],
            "gather": [("gather", n) for n in range(len(loads))],
            "reduce": [("reduce", c) for _, c in self.reductions],
        }

    def _inward(self, swapped: list[int]) -> Iterator[Name]:
        for e in range(2 * self.count):
            yield from (("load", n) for n, load in enumerate(self.loads) if load[0] == e)
            if e >= self.count and 2 * self.count - 1 - e in swapped:
                yield ("swap-in", 2 * self.count - 1 - e)

    def _waits(self, name: Name) -> list[Name | None]:
        do, n = name
        every = [("backward", 0), *self.queues_of_gradients] if not self.problem.overlap_update else []
        near = n + self.problem.interval + 1
        gone = [k for k in range(n - self.problem.interval) if self._swapped(k)]
        waits: dict[str, list[Name | None]] = {
            "forward": [*self._gathers(n), *(("swap-out", k) for k in gone)] if do == "forward" else [],
            "backward": [*self._gathers(2 * self.count - 1 - n), *([("swap-in", n)] if self._swapped(n) else [])],
            "load": [self.loads[n][2]] if do == "load" else [],
            "gather": [("load", n)],
            "swap-out": [("forward", n)],
            "swap-in": [("swap-out", n), ("backward", near) if near < self.count else ("forward", self.count - 1)],
            "reduce": [("backward", next((k for k, c in self.reductions if c == n), 0))],
            "offload": [("reduce", n)],
            "cpu": [("offload", n), *every],
            "device": [("reduce", n), *every],
        }
        return waits[do]

    @property
    def queues_of_gradients(self) -> list[Name]:
        return [
            *(("reduce", c) for _, c in self.reductions),
            *(("offload", c) for _, c in self.reductions if c not in self.plan.persistent),
        ]

    def _swapped(self, block: int) -> bool:
        return block < self.count and self.plan.policies[block] == "swap"

    def _gathers(self, e: int) -> list[Name | None]:
        return [("gather", n) for n, load in enumerate(self.loads) if load[0] == e]

    def _time_us(self, name: Name) -> int:
        do, n = name
        if do in ("load", "gather"):
            chunk = self.problem.chunks[self.loads[n][1]]
            return chunk.load_us if do == "load" else chunk.gather_us
        if do in ("forward", "backward", "swap-out", "swap-in"):
            block = self.problem.blocks[n]
            again = block.forward_us if self.plan.policies[n] == "checkpoint" else 0
            return {
                "forward": block.forward_us,
                "backward": block.backward_us + again,
                "swap-out": block.swap_out_us,
                "swap-in": block.swap_in_us,
            }[do]
        chunk = self.problem.chunks[n]
        reduce_us = chunk.allreduce_us if n in self.plan.persistent else chunk.reduce_us
        times = {"reduce": reduce_us, "offload": chunk.offload_us, "cpu": chunk.cpu_update_us}
        return times.get(do, chunk.device_update_us)

    def run(self) -> int:
        """Tick until all queues are empty and all lanes idle."""
        now = 0
        while any(self.queues.values()) or self.running:
            for lane in [lane for lane, (_, end) in self.running.items() if end == now]:
                self.done[self.running.pop(lane)[0]] = now
            while self._start_something(now):
                pass
            now += 1
            assert now < 100_000, "the clock never stops"
        return max(self.done.values())

    def _start_something(self, now: int) -> bool:
        """Start one task; reductions issued just now last, as a gather may yet be issued in the same microsecond."""
        for lane in ("compute", "in", "out", "cpu"):
            if lane not in self.running and self._issue(lane) is not None:
                return self._start(lane, lane, now)
        if "net" in self.running:
            return False
        gather, reduction = self._issue("gather"), self._issue("reduce")
        if gather is not None and (reduction is None or gather <= reduction):
            return self._start("gather", "net", now)
        return reduction is not None and self._start("reduce", "net", now)

    def _issue(self, queue: str) -> int | None:
        """Since when the queue's first task could start but for its lane."""
        if not self.queues[queue]:
            return None
        waits = [name for name in self._waits(self.queues[queue][0]) if name is not None]
        return max((self.done[name] for name in waits), default=0) if all(name in self.done for name in waits) else None

    def _start(self, queue: str, lane: str, now: int) -> bool:
        name = self.queues[queue].pop(0)
        if self._time_us(name):
            self.running[lane] = (name, now + self._time_us(name))
        else:
            self.done[name] = now
        return True
