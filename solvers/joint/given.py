"""A joint problem as plain lists, and as the two problems that it becomes once one half of the decision is fixed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from solvers.ir.joint import JointProblem
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.ir.swap import SwapLink
from solvers.recompute.graph.replay import Instance, instance

STREAM, DEVICE = 1, 2
FAR = 2**62
"""How long before the host the device is free, where it does not matter when: longer than any step."""


@dataclass(frozen=True)
class Given:
    """A problem, indexed by op. Times are in ticks, `ticks` of them to a µs: 1 unless the link counts nanoseconds.

    `graph` is its recompute-graph half with times in µs and unlimited memory; `out_time[i]`, `in_time[i]` what op i's
    output takes on the link; `last[i]` the latest op that depends on op i, directly or not (i where none does);
    `hideable[i]`: it takes time, and some communication takes as long.

    Where launches take time (`launched`): `launch[i]` is the host's to issue op i, `again[i]` to do so where it runs
    again, `tail[i]` how long that lasts at the least afterwards, `move[i]` the host's time to issue a transfer of its
    output, `waits[i]`: the host waits until it has ended, `sync[t]`: until stage t has (`STREAM`), or all transfers,
    too (`DEVICE`); `read[t]` what the lane out takes for numbers that the host then reads, `sent[t]` for what it does
    not wait for. `cost[i]` is the longer of what op i takes of the device and of the host: what heuristics charge.
    """

    problem: JointProblem
    graph: Instance
    ticks: int
    time: list[int]
    workspace: list[int]
    out_time: list[int]
    in_time: list[int]
    last: list[int]
    budget: int
    host: int | None
    shared: bool
    hideable: list[bool]
    launched: bool
    launch: list[int]
    again: list[int]
    tail: list[int]
    move: list[int]
    waits: list[bool]
    sync: list[int]
    read: list[int]
    sent: list[int]
    cost: list[int]

    def __len__(self) -> int:
        """The number of ops, which is the number of stages."""
        return len(self.time)

    @property
    def link(self) -> SwapLink:
        """The host link."""
        return self.problem.link

    @property
    def base_us(self) -> int:
        """The objective with unlimited memory; the time of all ops, unless the host is late with some."""
        end = host = 0
        for t in range(len(self) if self.launched else 0):
            end, host = self.ran(t, (t,), end, host)
            end, host, _ = self.after_waits(t, end, host, 0, 0)
        return self.whole_us(end) if self.launched else self.graph.base

    def host_takes(self, i: int) -> bool:
        """Whether op i's output fits into the host's limit, alone at least."""
        return self.host is None or self.graph.size[i] <= self.host

    def ran(self, t: int, run: Iterable[int], start: int, host: int) -> tuple[int, int]:
        """Device's and host's clocks once stage t, which begins at `start`, has run these ops, in ascending order."""
        end, end_of_communication = start, start
        if self.graph.comm[t]:
            host += self.launch[t]
            end_of_communication = max(start + self.time[t], host + self.tail[t])
        for i in run:
            if i != t or not self.graph.comm[t]:
                host += self.launch[i] if i == t else self.again[i]
                end = max(end + self.time[i], host + self.tail[i])
                host = max(host, end) if self.waits[i] else host
        return max(end, end_of_communication), host

    def after_waits(self, t: int, end: int, host: int, out_free: int, in_free: int) -> tuple[int, int, int]:
        """The clocks of device, host and lane out once the host has waited, and read numbers, behind stage t."""
        if self.sent[t]:
            end = out_free = max(end, host, out_free) + self.sent[t]
        if self.sync[t]:
            host = max(host, end, *((out_free, in_free) if self.sync[t] == DEVICE else ()))
        return (max(end, host, out_free) + self.read[t],) * 3 if self.read[t] else (end, host, out_free)

    def told(self, t: int) -> int:
        """What the device spends on copies to the host behind stage t."""
        return self.read[t] + self.sent[t]

    def host_stops(self, t: int) -> bool:
        """Whether the host goes on only when stage t has ended."""
        return self.waits[t] or self.sync[t] > 0 or self.read[t] > 0

    def launched_as(self, t: int, run: Iterable[int]) -> tuple[int, int]:
        """What the host takes to issue all that stage t runs, and how long that lasts at the least afterwards."""
        end, host = self.ran(t, run, -FAR, 0)
        return host, max(0, end - host)

    def whole_us(self, ticks: int) -> int:
        """A time in microseconds, rounded up: objectives are whole."""
        return -(-ticks // self.ticks)


def given_of(problem: JointProblem) -> Given:
    """The problem as plain lists."""
    link, sizes = problem.link, [op.output_bytes for op in problem.ops]
    roomy = replace(instance(recompute_half(problem)), budget=2**62)
    last = list(range(len(sizes)))
    for i in reversed(range(len(sizes))):
        for j in roomy.inputs[i]:
            last[j] = max(last[j], last[i])
    longest = max((op.time_us for op in problem.ops if op.comm), default=0)
    return Given(
        problem=problem,
        graph=roomy,
        ticks=link.ticks,
        time=[op.time_us * link.ticks for op in problem.ops],
        workspace=[op.workspace_bytes for op in problem.ops],
        out_time=[problem.out_ticks(i) for i in range(len(sizes))],
        in_time=[problem.in_ticks(i) for i in range(len(sizes))],
        last=last,
        budget=problem.budget_bytes,
        host=problem.host_budget_bytes,
        shared=problem.comm_shares_link,
        hideable=[op.replay and not op.comm and 0 < op.time_us <= longest for op in problem.ops],
        launched=problem.has_launches,
        launch=[op.launch_us * link.ticks for op in problem.ops],
        again=[op.launch_again_us * link.ticks for op in problem.ops],
        tail=[op.after_launch_us * link.ticks for op in problem.ops],
        move=[op.copies * problem.launch_us * link.ticks for op in problem.ops],
        waits=[op.host_waits for op in problem.ops],
        sync=[{None: 0, "stream": STREAM, "device": DEVICE}[op.sync] for op in problem.ops],
        read=[op.read_us * link.ticks for op in problem.ops],
        sent=[op.sent_us * link.ticks for op in problem.ops],
        cost=[max(op.time_us, op.launch_us) * link.ticks for op in problem.ops],
    )


def recompute_half(problem: JointProblem) -> RecomputeGraphProblem:
    """The problem without its link: its plans are the joint ones that swap nothing.

    That kind knows no workspace: the largest one counts as static memory, and beside one of communication that of what
    may run again meanwhile, which may cost more than it must and never allows a plan that does not fit.
    """
    ops = problem.ops
    beside = max((op.workspace_bytes for op in ops if op.replay and not op.comm), default=0)
    window = max((op.workspace_bytes for op in ops[problem.replays_from :] if op.comm), default=0)
    return problem.without_link(max(window + beside, *(op.workspace_bytes for op in ops)))


def least_budget_bytes(problem: JointProblem) -> int:
    """What the most demanding op needs beside its inputs (README, (L)): exact unless the host is limited."""
    ops = problem.ops
    return problem.static_bytes + max(
        op.workspace_bytes + sum(ops[i].output_bytes for i in {t, *op.inputs}) for t, op in enumerate(ops)
    )
