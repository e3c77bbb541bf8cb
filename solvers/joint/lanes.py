"""How long a `State` takes: when what left comes back, and one pass over the three lanes.

The same times as `draft.measure`'s, for the swap-ins that `issued` chooses: as late as they are still in time by the
stages' last known times, sooner if the lane is busy then, later where memory has no room for them.
"""

from itertools import accumulate

from solvers.joint.choice import Gap
from solvers.joint.draft import Away, Draft
from solvers.joint.state import State

FAULT = 2**80
"""How long what is not valid takes: longer than any step."""


class Lanes:
    """Times of one state after another; `start` are those of the stages by the last pass that was `kept`."""

    def __init__(self, state: State) -> None:
        self.state, given = state, state.given
        self.given, self.size = given, given.graph.size
        self.start = [0, *accumulate(state.ticks)][:-1]
        self.times = self.start
        self.issued: dict[int, list[Gap]] = {}

    def kept(self) -> None:
        """The last pass was of a state that stays."""
        self.start = self.times

    def draft(self) -> Draft:
        """The last pass's state with its swap-ins; entries in the order of the lanes."""
        issues = [(self.state.away[key], key[1], key[0], at) for at, issued in self.issued.items() for key in issued]
        return Draft([set(run) for run in self.state.again], tuple(Away(i, a, at) for _, a, i, at in sorted(issues)))

    def ticks(self, most: int = FAULT) -> int:
        """How long the state takes; `FAULT` where memory does not fit, or where it takes more than `most`."""
        state, given = self.state, self.given
        room = given.budget - state.static - state.held - state.local
        spare = most - sum(state.ticks)
        if spare < 0 or int(room.min()) < 0 or (given.host is not None and self._host() > given.host):
            return FAULT
        left: list[int] = room.tolist()
        self._issue(left)
        return self._pass(left, spare)

    def _host(self) -> int:
        change = [0] * (len(self.given) + 1)
        for (i, a), b in self.state.away.items():
            change[a] += self.size[i]
            change[b] -= self.size[i]
        return max(accumulate(change))

    def _issue(self, room: list[int]) -> None:
        """When what is away comes back, the last first; `room` by stage is less by what comes back sooner than read."""
        start, size, in_time, returns = self.start, self.size, self.given.in_time, self.state.returns
        self.issued = {}
        lane = FAULT
        for b in sorted(set(self.state.away.values()), reverse=True):
            for a, i in reversed(returns[b]):
                lane = min(lane, start[b]) - in_time[i]
                at, taken = b, size[i]
                while at > a + 1 and start[at] > lane and room[at - 1] >= taken:
                    at -= 1
                    room[at] -= taken
                lane = max(start[at], lane)
                if at in self.issued:
                    self.issued[at].append((i, a))
                else:
                    self.issued[at] = [(i, a)]

    def _pass(self, room: list[int], spare: int) -> int:
        """All stages in order; `FAULT` once they wait for more than `spare`. The innermost loop, so with few calls."""
        state, size, out_time, in_time = self.state, self.size, self.given.out_time, self.given.in_time
        leaves, returns, away, issued, talking = state.leaves, state.returns, state.away, self.issued, self._talking()
        ends, sizes, times = list[int](), list[int](), list[int]()
        gone, due = dict[Gap, int](), dict[int, int]()
        now = out_free = in_free = leaving = done = waited = 0
        for t, took in enumerate(state.ticks):
            before, back = now, issued.get(t)  # what is read last stands first
            if back is not None:
                now = max(now, max([gone[key] for key in back]))
            if leaving > room[t]:
                while leaving > room[t]:
                    if ends[done] > now:
                        now = ends[done]
                    leaving -= sizes[done]
                    done += 1
            if back is not None:
                for key in reversed(back):
                    in_free = (in_free if in_free > now else now) + in_time[key[0]]
                    due[away[key]] = in_free
            if returns[t] and due[t] > now:
                now = due[t]
            if t in talking:
                now = max(now, out_free, in_free)
            if now > before:
                waited += now - before
                if waited > spare:
                    return FAULT
            times.append(now)
            now += took
            if t in talking:
                out_free = in_free = now
            if leaves[t]:
                for i in self._leaving(t):
                    out_free = gone[i, t] = (out_free if out_free > now else now) + out_time[i]
                    ends.append(out_free)
                    sizes.append(size[i])
                    leaving += size[i]
        self.times = times
        return now

    def _talking(self) -> set[int]:
        """The stages whose communication has the link to itself."""
        comm = self.given.graph.comm
        if not self.given.shared:
            return set()
        return {t for t, run in enumerate(self.state.again) if comm[t] or any(comm[i] for i in run)}

    def _leaving(self, t: int) -> list[int]:
        """What leaves behind a stage, first what is read first."""
        ops = self.state.leaves[t]
        return ops if len(ops) < 2 else sorted(ops, key=lambda i: (self.state.away[i, t], i))
