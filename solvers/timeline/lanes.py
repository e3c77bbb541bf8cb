"""The core of every timeline: lanes are FIFO resources; an action starts when its lane is free and its waits ended."""

from collections.abc import Callable
from typing import Protocol

from solvers.ir.report import Span
from solvers.ir.schedule import Action, Schedule


class Host(Protocol):
    """Who issues the actions."""

    def issue(self, action: Action) -> tuple[float, float]:
        """The earliest start and the earliest end of it by what issuing it takes."""

    def wait(self, action: Action, end: float, free: dict[str, float]) -> float:
        """Its end, with what the host reads behind it; `free`: when each lane is, which that changes, too."""


def run_lanes(schedule: Schedule, duration_us: Callable[[Action], int], host: Host | None = None) -> dict[int, Span]:
    """The span of every action, by action id: start = max(end of the one before in its lane, ends of `after`).

    `host` issues the actions in their order, and may wait for some.
    """
    spans: dict[int, Span] = {}
    free: dict[str, float] = {}
    for action in schedule.order():
        begin, least = (0, 0) if host is None else host.issue(action)
        start = max([free.get(action.lane, 0), begin, *(spans[before].end_us for before in action.after)])
        end = max(start + duration_us(action), least)
        end = free[action.lane] = end if host is None else host.wait(action, end, free)
        spans[action.id] = Span(action=action.id, lane=action.lane, label=label(action), start_us=start, end_us=end)
    return {action.id: spans[action.id] for action in schedule.actions}


def makespan_us(spans: dict[int, Span]) -> float:
    """The end of the last action of any lane; 0 for no actions."""
    return max((span.end_us for span in spans.values()), default=0)


def label(action: Action) -> str:
    """A short name for drawings: what, its op or microbatch, and its tensors."""
    parts: list[str] = [action.do]
    parts += [f"op {action.op}"] if action.op is not None else []
    parts += [f"microbatch {action.microbatch}"] if action.microbatch is not None else []
    parts += [f"tensor {', '.join(str(name) for name in action.data)}"] if action.data else []
    return " ".join(parts)
