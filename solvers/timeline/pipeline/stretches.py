"""How a layer's pass is cut by its windows into stretches of computation and collectives (formats.md 11.8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from solvers.ir.errors import InvalidProblem
from solvers.ir.pipeline import PipelineProblem
from solvers.ir.recompute import Window


@dataclass(frozen=True)
class LayerPass:
    """One layer's forward or backward pass: stretch, collective, stretch, …, stretch; times in µs.

    `first_window` is the number of its first window among the problem's.
    """

    stretch_us: tuple[int, ...]
    collective_us: tuple[int, ...]
    first_window: int

    @property
    def steps(self) -> int:
        """Stretches of one layer: what `op` counts."""
        return len(self.stretch_us)


def layer_passes(problem: PipelineProblem) -> dict[str, LayerPass]:
    """Both passes of a layer, by `pass`; raises `InvalidProblem` where windows last longer than their pass.

    Forward windows stand at the layer's communication where there are as many and none is longer; others at equal
    distances.
    """
    forward = [window for window in problem.windows if window.phase == "forward"]
    backward = problem.windows[len(forward) :]
    placed = _at_communication(problem, forward)
    if placed is None:
        placed = _spread("forward", problem.forward_us, forward), tuple(window.time_us for window in forward)
    spread = _spread("backward", problem.backward_us, backward)
    return {
        "forward": LayerPass(*placed, first_window=0),
        "backward": LayerPass(spread, tuple(window.time_us for window in backward), first_window=len(forward)),
    }


def _at_communication(
    problem: PipelineProblem, windows: Sequence[Window]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Times of stretches and collectives of the forward pass, op by op; None where the windows do not fit the ops."""
    stretches, collectives = [0], list[int]()
    for op in problem.ops:
        if op.comm and op.time_us:
            collectives.append(op.time_us)
            stretches.append(0)
        else:
            stretches[-1] += op.time_us
    if len(collectives) != len(windows):
        return None
    if any(window.time_us > time for window, time in zip(windows, collectives, strict=True)):
        return None
    return tuple(stretches), tuple(collectives)


def _spread(name: str, pass_us: int, windows: Sequence[Window]) -> tuple[int, ...]:
    """What is left beside the windows, in equal stretches around them."""
    rest = pass_us - sum(window.time_us for window in windows)
    if rest < 0:
        raise InvalidProblem(
            f"the {name} windows of a layer take {pass_us - rest} us, but its pass only {pass_us} us, so that no "
            "schedule has room for them: shorten the windows"
        )
    count = len(windows) + 1
    ends = [rest * number // count for number in range(count + 1)]
    return tuple(after - before for before, after in pairwise(ends))
