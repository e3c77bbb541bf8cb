"""What the rows of a sweep say together."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from experiments.figures import figures_of
from experiments.pictures import Line
from experiments.tables import axis_name, shown
from solvers.ir import Row


class Point(NamedTuple):
    """An optimizer's answer: infinitely slow where there is provably no plan."""

    budget_bytes: int
    link_bytes_per_s: int
    objective_us: float

    def harder(self, other: "Point") -> bool:
        """Whether this cell has no more memory and no faster link than the other, and less of at least one."""
        ours, theirs = self[:2], other[:2]
        return ours != theirs and all(one <= two for one, two in zip(ours, theirs, strict=True))

    def __str__(self) -> str:
        return f"{self.objective_us:,.0f} µs at {self.budget_bytes:,} bytes and {self.link_bytes_per_s / 1e9:g} GB/s"


def monotony(rows: Sequence[Row]) -> str:
    """Whether the step time of the best plans never falls as the budget shrinks or the link slows, in one sentence.

    Judged on the objectives of the solvers that know a bound: they begin from the plans of harder cells.
    """
    points = [point for row in rows if (point := _point(row)) is not None]
    for easy in points:
        for hard in points:
            if hard.harder(easy) and hard.objective_us < easy.objective_us:
                return f"The best plans' step time falls from {easy} to {hard}: run the sweep again in a new folder."
    return "The best plans' step time never falls as the budget shrinks or the link slows."


def sweep_lines(rows: Sequence[Row], axes: Sequence[str]) -> list[Line]:
    """A line for each solver and value of the second axis: the first axis against step time over the unlimited one."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        ratio, place = figures_of(row.figures).ratio, row.asked.get(axes[0])
        if "status" in row.figures and ratio is not None and isinstance(place, int | float):
            key = (str(row.asked["policy"]), f"{axis_name(axes[1])} {shown(row.asked.get(axes[1]))}")
            found.setdefault(key, []).append((float(place), ratio))
    return [Line(policy, group, tuple(sorted(points))) for (policy, group), points in found.items()]


def _point(row: Row) -> Point | None:
    figures = figures_of(row.figures)
    if row.outcome == "infeasible":
        objective = math.inf
    elif figures.bound_us is not None and figures.objective_us is not None:
        objective = float(figures.objective_us)
    else:
        return None
    return Point(int(row.asked["budget_bytes"]), int(row.asked["link_bytes_per_s"]), objective)
