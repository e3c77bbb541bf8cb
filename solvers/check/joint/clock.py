"""When the stages of a valid `joint` decision end: formats.md 14.6 to 14.9 and 14.11, followed stage by stage."""

import math
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

from solvers.ir.joint import JointProblem

Sets = list[set[int]]
"""One set of op indices a stage."""


@dataclass(frozen=True)
class Entry:
    """An entry of `swap`, with the first stage that reads what has returned."""

    op: int
    out_after: int
    in_at: int
    reader: int


def end_us(problem: JointProblem, computed: Sets, peaks: list[int], entries: list[Entry]) -> int:
    """The end of the last stage in µs, rounded up."""
    unit = 1 if problem.link.latency_ns is None else 1000
    return math.ceil(Fraction(_Clock(problem, unit, entries).run(computed, peaks), unit))


def _by_stage(entries: list[Entry], field: str) -> dict[int, list[int]]:
    """The places in the list of the entries whose field is a stage, ascending."""
    numbers = defaultdict[int, list[int]](list)
    for number, entry in enumerate(entries):
        numbers[getattr(entry, field)].append(number)
    return numbers


class _Clock:
    """Lanes of the link, the compute lane and the host, in 1/unit µs; `out_end` and `in_end` by place in the list."""

    def __init__(self, problem: JointProblem, unit: int, entries: list[Entry]) -> None:
        self.problem, self.unit, self.entries = problem, unit, entries
        self.numbers = {field: _by_stage(entries, field) for field in ("in_at", "reader", "out_after")}
        self.out_end: dict[int, int] = {}
        self.in_end: dict[int, int] = {}
        self.out_free = self.in_free = self.host = 0

    def run(self, computed: Sets, peaks: list[int]) -> int:
        """Stage by stage; the end of the last one."""
        ops, now = self.problem.ops, 0
        for t, run in enumerate(computed):
            now = self._ready(t, now, peaks[t])
            for number in self._where("in_at", t):
                time = self._transfer(number, self.problem.link.in_bytes_per_s)
                self.in_free = self.in_end[number] = max(self.in_free, now, self._issued(number)) + time
            now = max([now, *(self.in_end[number] for number in self._where("reader", t))])
            shared = self.problem.comm_shares_link and any(ops[i].comm for i in run)
            if shared:
                now = max(now, self.out_free, self.in_free)
            now = self._end(t, run, now)
            if ops[t].sent_us:
                now = self.out_free = max(now, self.host, self.out_free) + self.unit * ops[t].sent_us
            if ops[t].sync:
                self.host = max(self.host, now, *self._lanes(ops[t].sync))
            if ops[t].read_us:
                now = self.host = self.out_free = max(now, self.host, self.out_free) + self.unit * ops[t].read_us
            if shared:
                self.out_free = self.in_free = now
            for number in self._where("out_after", t):
                time = self._transfer(number, self.problem.link.out_bytes_per_s)
                self.out_free = self.out_end[number] = max(self.out_free, now, self._issued(number)) + time
        return now

    def _lanes(self, sync: str | None) -> tuple[int, ...]:
        return (self.out_free, self.in_free) if sync == "device" else ()

    def _issued(self, number: int) -> int:
        """14.11: when the host has issued a transfer."""
        self.host += self.unit * self.problem.launch_us * self.problem.ops[self.entries[number].op].copies
        return self.host

    def _end(self, t: int, run: set[int], start: int) -> int:
        """14.7 and 14.11: the end of a stage's ops, communication first; the host waits for some."""
        ops, computed = self.problem.ops, start
        ends = [start]
        for i in sorted(run, key=lambda i: (i != t or not ops[t].comm, i)):
            self.host += self.unit * (ops[i].launch_us if i == t else ops[i].launch_again_us)
            begin = start if i == t and ops[t].comm else computed
            ends.append(max(begin + self.unit * ops[i].time_us, self.host + self.unit * ops[i].after_launch_us))
            computed = computed if i == t and ops[t].comm else ends[-1]
            self.host = max(self.host, ends[-1]) if ops[i].host_waits else self.host
        return max(ends)

    def _ready(self, t: int, now: int, peak: int) -> int:
        """14.6: what returns has left, and what has not left yet finds room beside the stage's peak."""
        now = max([now, *(self.out_end[number] for number in self._where("in_at", t))])
        leaving = sorted((end, number) for number, end in self.out_end.items() if end > now)
        level = peak + sum(self._size(number) for _, number in leaving)
        for end, number in leaving:
            if level <= self.problem.budget_bytes:
                break
            now, level = end, level - self._size(number)
        return now

    def _where(self, field: str, t: int) -> list[int]:
        return self.numbers[field].get(t, [])

    def _size(self, number: int) -> int:
        return self.problem.ops[self.entries[number].op].output_bytes

    def _transfer(self, number: int, bytes_per_s: int) -> int:
        link, copies = self.problem.link, self.problem.ops[self.entries[number].op].copies
        if link.latency_ns is None:
            return copies * link.latency_us + math.ceil(Fraction(self._size(number) * 10**6, bytes_per_s))
        return copies * link.latency_ns + math.ceil(Fraction(self._size(number) * 10**9, bytes_per_s))
