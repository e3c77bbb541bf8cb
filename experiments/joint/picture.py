"""The picture of `bayplan pareto`: overhead over the budget; what lies below the bound no plan reaches."""

import textwrap
from typing import Any, cast

from matplotlib import rc_context
from matplotlib.figure import Figure

from experiments.joint.pareto import Pareto
from experiments.plots import STYLE, TITLE_WIDTH, settled

GIB = 2**30
LINES = {"greedy_us": ("greedy-joint", "#ff7f0e", "--"), "joint_us": ("joint", "#1f77b4", "-")}


def pareto_figure(found: Pareto) -> Figure:
    """Steps over the base as steps: between two budgets the smaller one's plan holds, and the larger one's bound."""
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(8.6, 3.9), layout="constrained")
        axes = figure.add_subplot()
        budgets = [point.budget_bytes / GIB for point in found.points]

        def over(value: float | None) -> float:
            return float("nan") if value is None else 100 * (value - found.base_us) / found.base_us

        for field, (label, colour, style) in LINES.items():
            values = [over(getattr(point, field)) for point in found.points]
            axes.step(budgets, values, where="post", label=label, color=colour, ls=style, marker="o", ms=3.5, lw=1.5)
        bounds = [over(point.bound_us) for point in found.points]
        axes.step(budgets, bounds, where="pre", color="#555555", lw=1.2, label="no plan is below")
        axes.fill_between(budgets, bounds, step="pre", color="#dddddd")
        axes.set(xlabel="memory budget (GiB)", ylabel="step over everything kept (%)")
        axes.set_title(textwrap.fill(f"{found.name} on {found.hardware}", TITLE_WIDTH).replace("$", r"\$"))
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color="#e5e5e5", lw=0.7)
        axes.set_axisbelow(True)
        axes.legend(loc="upper right")
        return settled(figure)
