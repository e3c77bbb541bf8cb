"""The page: a row a case, and what they say together."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

HEAD = (
    "case", "link", "base ms", "swap only", "recompute only", "greedy", "joint", "bound", "greedy's gap", "joint's gap",
    "overhead gap",
)  # fmt: skip
Row = dict[str, Any]


def page(rows: Sequence[Row]) -> str:
    """Markdown; overheads in per cent of the base, gaps in per cent of the step."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    return "\n".join([*lines, "", *families(rows), "", *summary(rows), ""])


def families(rows: Sequence[Row]) -> list[str]:
    """A table: what optimal is worth by family of models, of the step."""
    head = (
        "family",
        "cases",
        "greedy's certified gap, median, worst",
        "its step longer than joint's, median, worst",
        "≥ 5 % in",
    )
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for family in dict.fromkeys(row["family"] for row in rows):
        timed = [row for row in rows if row["family"] == family and row["greedy"] is not None]
        if not timed:
            continue
        gaps = [100 * gap(row, "greedy") for row in timed]
        wins = [_win(row) for row in timed]
        cells = (family, str(len(timed)), f"{median(gaps):.2f}, {max(gaps):.2f} %",
                 f"{median(wins):.2f}, {max(wins):.2f} %", str(sum(win >= 5 for win in wins)))  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _win(row: Row) -> float:
    """By how much greedy's step is longer than joint's, in per cent of joint's."""
    return float(100 * (row["greedy"] - row["joint"]) / (row["base_us"] + row["joint"]))


def _cells(row: Row) -> list[str]:
    base = row["base_us"]
    overheads = [_percent(row[key], base) for key in ("swap", "recompute", "greedy", "joint", "bound")]
    gaps = [f"{100 * gap(row, key):.2f}" if row[key] is not None else "–" for key in ("greedy", "joint")]
    return [row["case"], row["link"], f"{base / 1000:.0f}", *overheads, *gaps, _overhead_gap(row)]


def gap(row: Row, key: str) -> float:
    """How far an answer can be from the best of all plans: of the step."""
    return float((row[key] - row["bound"]) / (row["base_us"] + row[key]))


def _overhead_gap(row: Row) -> str:
    if not row["joint"]:
        return "0"
    return f"{100 * (row['joint'] - row['bound']) / row['joint']:.1f}"


def _percent(overhead: float | None, base: int) -> str:
    return "–" if overhead is None else f"{100 * overhead / base:.2f}"


def best_single(row: Row) -> float:
    """The overhead of the better single technique; infinite where neither has a plan."""
    return min((row[key] for key in ("swap", "recompute") if row[key] is not None), default=float("inf"))


def summary(rows: Sequence[Row]) -> list[str]:
    """What the rows say together, in sentences."""
    count = len(rows)

    def share(holds: Callable[[Row], bool]) -> str:
        return f"{sum(map(holds, rows))} of {count}"

    timed = [row for row in rows if row["greedy"] is not None]
    gaps = [100 * gap(row, "greedy") for row in timed]
    own = [100 * gap(row, "joint") for row in rows]
    wins = [_win(row) for row in timed]
    over = [100 * (row["joint"] - row["bound"]) / row["joint"] for row in rows if row["joint"]]
    below, better = (
        share(lambda row: bool(row["joint"] <= best_single(row))),
        share(lambda row: _has_both(row) and _is_better(row)),
    )
    alone = sum(_is_better(row) and not _has_both(row) for row in rows)
    return [
        f"- joint is never above a single technique in {below} cases, better than both by at least 1 % of the base in "
        f"{better}, better than the only one that has a plan in {alone} more.",
        f"- greedy's certified gap, of the step: {_range(gaps)}; joint's: {_range(own)}.",
        f"- greedy's step is longer than joint's by {min(wins):.2f} to {max(wins):.2f} %, by 1 % or more in "
        f"{sum(win >= 1 for win in wins)}, by 5 % or more in {sum(win >= 5 for win in wins)} cases.",
        f"- joint's overhead gap: {_range(over)}; at most 10 % in {sum(value <= 10 for value in over)} of {len(over)} "
        "cases with overhead.",
        f"- bounds proven (certificate added up by the judge): {share(lambda row: bool(row['proven']))}.",
    ]


def _has_both(row: Row) -> bool:
    return row["swap"] is not None and row["recompute"] is not None


def _is_better(row: Row) -> bool:
    return bool(best_single(row) - float(row["joint"]) >= 0.01 * row["base_us"])


def _range(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return f"median {median(values):.2f} %, best {min(values):.2f} %, worst {max(values):.2f} %"
