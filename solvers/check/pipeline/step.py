"""A training step's passes, told as a story: each stage runs its list, and a pass waits for its message (15.4–15.6)."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class StageTimes:
    """What one microbatch takes on a stage.

    `critical_us`, `forward_hidden_us`: recomputation on the critical path and in forward windows; `ahead_us`: what of
    that in backward windows comes along where the stage recomputes ahead of the gradient, if it may (`may_hide`).
    """

    forward_us: int
    backward_us: int
    critical_us: int = 0
    forward_hidden_us: int = 0
    ahead_us: int = 0
    may_hide: bool = False


Pass = tuple[Literal["F", "B"], int]


def in_flight(stage: int, depth: int, microbatches: int, order: str) -> int:
    """Microbatches of which a stage keeps something at once, at most."""
    return microbatches if order == "gpipe" else min(depth - stage, microbatches)


def passes_of(stage: int, depth: int, microbatches: int, order: str) -> list[Pass]:
    """15.4: a stage's passes in order; 1F1B runs a backward pass as soon as `in_flight` microbatches are there."""
    if order == "gpipe":
        return [("F", m) for m in range(microbatches)] + [("B", m) for m in reversed(range(microbatches))]
    begun = done = 0
    passes: list[Pass] = []
    while done < microbatches:
        if begun < microbatches and begun - done < depth - stage:
            passes.append(("F", begun))
            begun += 1
        else:
            passes.append(("B", done))
            done += 1
    return passes


class _Stage:
    """A stage at work: how far its list is done, and when it was last busy."""

    def __init__(self, times: StageTimes, passes: list[Pass], hide: str, ahead: int) -> None:
        self.times, self.passes, self.hide, self.ahead = times, passes, hide, ahead
        self.at, self.free = 0, 0

    def run(self, arrival: int) -> int:
        """Run the next pass, whose message arrives then; the end of it."""
        kind, m = self.passes[self.at]
        begin = max(self.free, arrival)
        if kind == "F":
            self.free = begin + self.times.forward_us
        else:
            self.free = self._backward_start(begin, m, arrival) + self.times.backward_us
        self.at += 1
        return self.free

    def _backward_start(self, begin: int, m: int, arrival: int) -> int:
        """15.5, 15.6: recomputation once the gradient is there, or ahead of it where that is allowed and sooner."""
        before = self.passes[self.at - 1]
        steady = self.ahead > 0 and before == ("F", m + self.ahead)
        again = self.times.critical_us + (0 if steady else self.times.forward_hidden_us)
        late = begin + again
        if not self.times.may_hide or self.hide == "none" or (self.hide == "cooldown" and steady):
            return late
        return min(late, max(arrival, self.free + again + self.times.ahead_us))


def step_us(stages: list[StageTimes], microbatches: int, order: str, p2p_us: int, hide: str) -> int:
    """The end of the last pass of a step."""
    depth = len(stages)
    working = []
    for p, times in enumerate(stages):
        ahead = 0 if order == "gpipe" else depth - 1 - p
        working.append(_Stage(times, passes_of(p, depth, microbatches, order), hide, ahead))
    inbox: list[dict[Pass, int]] = [{} for _ in stages]
    inbox[0] = {("F", m): 0 for m in range(microbatches)}
    awake = [0]
    while awake:
        p = awake.pop()
        stage = working[p]
        while stage.at < len(stage.passes) and stage.passes[stage.at] in inbox[p]:
            kind, m = stage.passes[stage.at]
            end = stage.run(inbox[p].pop((kind, m)))
            if kind == "F" and p == depth - 1:
                inbox[p][("B", m)] = end
            elif (kind == "F") or p > 0:
                neighbour = p + 1 if kind == "F" else p - 1
                inbox[neighbour][(kind, m)] = end + p2p_us
                awake.append(neighbour)
    assert all(stage.at == len(stage.passes) for stage in working), "a pass waits for ever"
    return max(stage.free for stage in working)
