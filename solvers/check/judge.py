"""What a judge knows of its kind: the meaning of a decision, and what is easy to tell about a problem."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from solvers.check.verdict import Verdict

Range = tuple[float, float]
"""The best objective is at least and at most this, in µs; infinite where no decision is valid, or none is known."""


@dataclass(frozen=True, kw_only=True)
class Judge:
    """The functions of one kind; None where the kind has no such thing, or it is not easy to tell.

    `decision` judges a plan. `base_us` is the objective with unlimited memory (`layout`: what no decision ends before
    then), or what it is at least and at most. `least_budget_bytes` is at least and at most what the least feasible
    budget is. `is_feasible` tells whether some decision is surely valid. `best_us` is what the judge itself proves of
    the best objective, told what is claimed (so that it need not look for more); it takes seconds at most.
    """

    decision: Callable[[Any, Any], Verdict]
    base_us: Callable[[Any], int | tuple[int, int]] | None = None
    least_budget_bytes: Callable[[Any], tuple[int, int]] | None = None
    is_feasible: Callable[[Any], bool] | None = None
    best_us: Callable[[Any, float | None], Range] | None = None
