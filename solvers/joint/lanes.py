"""How long a `State` takes: when what left comes back, and one pass over the three lanes and the host.

The same times as `draft.measure`'s, for the swap-ins that `issued` chooses: as late as they are still in time by the
stages' last known times, sooner if the lane is busy then, later where memory has no room for them.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

from solvers.joint.choice import Gap
from solvers.joint.draft import Away, Draft
from solvers.joint.state import State

FAULT = 2**80
"""How long what is not valid takes: longer than any step."""
EARLY = 20
"""One of so many stages from which something returns may lie before those that are looked at first."""
LUCK = 20
"""The most that looking at these stages first is credited with."""


@dataclass
class _Run:
    """How far a pass has come: now, when the lanes are free, what is leaving, how much of it was waited for, waits, the
    host.

    `ends`, `sizes` of what leaves, in order; `times`: the starts of the stages; `gone`: when what has left was away;
    `due`: when what a stage reads has returned.
    """

    lanes: tuple[int, int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0, 0)
    ends: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    gone: dict[Gap, int] = field(default_factory=dict)
    due: dict[int, int] = field(default_factory=dict)


class Lanes:
    """Times of one state after another; `start` are those of the stages by the last pass that was `kept`."""

    def __init__(self, state: State) -> None:
        self.state, given = state, state.given
        self.given, self.size = given, given.graph.size
        self.start = [0, *accumulate(state.ticks)][:-1]
        self.times = self.start
        self.issued: dict[int, list[Gap]] = {}
        self.quiet = 0  # up to this stage hardly anything came back
        self.luck = 0  # how much more often it is enough to look at these stages than not

    def kept(self) -> None:
        """The last pass was of a state that stays."""
        self.start = self.times
        stages = sorted(self.issued)
        self.quiet = stages[len(stages) // EARLY] if stages else 0
        self.luck = min(LUCK, self.luck + 1)

    def draft(self) -> Draft:
        """The last pass's state with its swap-ins; entries in the order of the lanes."""
        state = self.state
        issues = [(state.away[key], key[1], key[0], at) for at, issued in self.issued.items() for key in issued]
        away = tuple(Away(i, state.behind(i, a), at) for _, a, i, at in sorted(issues))
        return Draft([set(run) for run in state.again], away)

    def ticks(self, most: int = FAULT) -> int:
        """How long the state takes; `FAULT` where memory does not fit, or where it takes more than `most`."""
        state, given = self.state, self.given
        room = given.budget - state.static - state.held - state.local
        spare = most - state.total
        if spare < 0 or int(room.min()) < 0 or (given.host is not None and self._host() > given.host):
            return FAULT
        left: list[int] = room.tolist()
        run = _Run()
        if self.quiet and self.luck >= 0:
            if not self._pass(run, left, spare, self.quiet):
                self.luck = min(LUCK, self.luck + 1)
                return FAULT  # too late though nothing has come back
            self.luck -= 1
        self._issue(left)
        if min(self.issued, default=self.quiet) < self.quiet:
            run = _Run()
        if not self._pass(run, left, spare, len(self.given)):
            return FAULT
        self.times = run.times
        return run.lanes[0]

    def _host(self) -> int:
        change = [0] * (len(self.given) + 1)
        for (i, a), b in self.state.away.items():
            change[self.state.behind(i, a)] += self.size[i]
            change[b] -= self.size[i]
        return max(accumulate(change))

    def _issue(self, room: list[int]) -> None:
        """When what is away comes back, the last first; `room` by stage is less by what comes back sooner than read."""
        start, size, in_time, returns = self.start, self.size, self.given.in_time, self.state.returns
        behind = self.state.waits
        self.issued = {}
        lane = FAULT
        for b in sorted(set(self.state.away.values()), reverse=True):
            for a, i in reversed(returns[b]):
                lane = (lane if lane < start[b] else start[b]) - in_time[i]
                first = behind.get((i, a), a) + 2
                wanted, at, taken = bisect_right(start, lane, first, b + 1) - 1, b, size[i]  # from there on in time
                while at > wanted and room[at - 1] >= taken:
                    at -= 1
                    room[at] -= taken
                if start[at] > lane:
                    lane = start[at]
                if at in self.issued:
                    self.issued[at].append((i, a))
                else:
                    self.issued[at] = [(i, a)]

    def _pass(self, run: "_Run", room: list[int], spare: int, until: int) -> bool:
        """The stages from where the run is, in order; False once they wait for more than `spare`.

        The innermost loop, so with few calls.
        """
        state, size, out_time, in_time = self.state, self.size, self.given.out_time, self.given.in_time
        away, talking, first, part = state.away, self._talking(), len(run.times), slice(len(run.times), until)
        ends, sizes, times, gone, due = run.ends, run.sizes, run.times, run.gone, run.due
        now, out_free, in_free, leaving, done, waited, host = run.lanes
        launched, move = self.given.launched, self.given.move
        back_at = self._by_stage() if until == len(room) else [None] * until
        lists = (state.ticks[part], room[part], back_at[part], state.returns[part], state.leaves[part])
        for t, (took, free, back, read, left) in enumerate(zip(*lists, strict=True), first):
            if back is not None or leaving > free or read or talking:
                before = now
                if back is not None:  # what is read last stands first
                    now = max(now, max([gone[key] for key in back]))
                while leaving > free:
                    if ends[done] > now:
                        now = ends[done]
                    leaving -= sizes[done]
                    done += 1
                for key in reversed(back) if back is not None else ():
                    host += move[key[0]]
                    in_free = max(in_free, now, host) + in_time[key[0]]
                    due[away[key]] = in_free
                if read and due.get(t, 0) > now:
                    now = due[t]
                if t in talking:
                    now = max(now, out_free, in_free)
                if now > before:
                    waited += now - before
                    if waited > spare:
                        return False
            times.append(now)
            if launched:
                before = now
                now, host = self.given.ran(t, (*sorted(state.again[t]), t), now, host)
                now, host, out_free = self.given.after_waits(t, now, host, out_free, in_free)
                waited += now - before - took
                if waited > spare:
                    return False
            else:
                now += took
            if t in talking:
                out_free = in_free = now
            if left:
                for a, i in left if len(left) == 1 else self._leaving(t):
                    host += move[i]
                    out_free = gone[i, a] = max(out_free, now, host) + out_time[i]
                    ends.append(out_free)
                    sizes.append(size[i])
                    leaving += size[i]
        run.lanes = now, out_free, in_free, leaving, done, waited, host
        return True

    def _by_stage(self) -> list[list[Gap] | None]:
        """What returns from each stage on."""
        found: list[list[Gap] | None] = [None] * len(self.given)
        for at, keys in self.issued.items():
            found[at] = keys
        return found

    def _talking(self) -> set[int]:
        """The stages whose communication has the link to itself."""
        comm = self.given.graph.comm
        if not self.given.shared:
            return set()
        return {t for t, run in enumerate(self.state.again) if comm[t] or any(comm[i] for i in run)}

    def _leaving(self, t: int) -> list[tuple[int, int]]:
        """What leaves behind a stage, first what is read first."""
        return sorted(self.state.leaves[t], key=lambda left: (self.state.away[left[1], left[0]], *left))
