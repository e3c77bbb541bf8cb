"""The page of PyTorch's planners beside ours: a line for each model and planner."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]
HEAD = (
    "model", "planner", "budget kept", "worst peak, of the budget", "lower budget, higher peak",
    "least overhead whose peak fits half", "s a plan",
)  # fmt: skip
HALF = 0.5
OURS = ("opt", "joint")


def page(rows: Sequence[Row]) -> str:
    """Markdown; memory without what is static, overheads in per cent of the base."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for model, planner in dict.fromkeys((row["model"], row["planner"]) for row in rows):
        own = [row for row in rows if (row["model"], row["planner"]) == (model, planner)]
        lines.append("| " + " | ".join([model, planner, *cells(own)]) + " |")
    return "\n".join(lines) + "\n"


def cells(rows: Sequence[Row]) -> list[str]:
    """What one planner's rows of a model say."""
    seconds = f"{max(row['s'] for row in rows):.2f}"
    half = next(row for row in rows if row["share"] == HALF)
    if rows[0]["planner"] in OURS:
        planned = [row for row in rows if row["step_us"] is not None]
        return [f"{len(planned)} of {len(rows)}, the others refused", "–", "–", _least([half]), seconds]
    kept = sum(row["peak_bytes"] <= row["budget_bytes"] for row in rows)
    worst = max(row["peak_bytes"] / row["budget_bytes"] for row in rows)
    fit = [row for row in rows if row["peak_bytes"] <= half["budget_bytes"]]
    return [f"{kept} of {len(rows)}", f"{100 * worst:.0f} %", f"{inversions(rows)}", _least(fit), seconds]


def inversions(rows: Sequence[Row]) -> int:
    """How often the next larger budget has a lower peak."""
    ordered = sorted(rows, key=lambda row: row["share"])
    return sum(a["peak_bytes"] > b["peak_bytes"] for a, b in itertools.pairwise(ordered))


def _least(rows: Iterable[Row]) -> str:
    steps = [100 * (row["step_us"] - row["base_us"]) / row["base_us"] for row in rows if row["step_us"] is not None]
    return f"{min(steps):.2f} %" if steps else "none"
