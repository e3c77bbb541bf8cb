"""Rows of a cluster experiment as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.tables import NOTHING, Table, axis_name, shown
from solvers.ir import Row

LIVES, PLANS = "lives", "plans"
"""What a row is about: `asked["what"]`."""
LIVES_NOTE = (
    "Samples/s: over the whole time, lost work left out. First over: the first policy's samples/s over this one's, "
    "life by life, with the 95 % confidence interval of the mean. Shares are of the whole time; lost: steps cut "
    "short or undone. Decisions: means of a life; longest: the longest decision by the clock of this machine."
)
PLANS_NOTE = (
    "Gap: (objective − bound) / objective, the largest of the draws, bound: the exact planner's. Cold: with nothing "
    "remembered, median and longest of the draws by this machine's clock, and the longest's processor time; again: the "
    "same problem a second time."
)


def lives_table(rows: Sequence[Row], about: str) -> Table:
    """One line for each policy: throughput as a distribution, the first policy over it, and where its time went."""
    chosen = [row for row in rows if row.asked.get("what") == LIVES]
    head = (
        "policy", "samples/s: p5", "p50", "p95", "mean ± 95 %", "first over: p5", "p50", "p95", "mean", "95 %",
        "training", "transition", "lost", "stopped", "decisions", "longest (ms)",
    )  # fmt: skip
    note = " ".join([LIVES_NOTE, *(f"{line[:1].upper()}{line[1:]}." for line in remark_lines(chosen))])
    return Table(f"Lives: {about}", head, tuple(_life(row) for row in chosen), note)


def remark_lines(rows: Sequence[Row]) -> list[str]:
    """The remarks that rows hold, one line for each, with the policies that it is said of."""
    said: dict[str, list[str]] = {}
    for row in rows:
        if row.asked.get("what") == LIVES and row.outcome == "ok" and row.reason is not None:
            said.setdefault(row.reason, []).append(str(row.asked["policy"]))
    return [f"{', '.join(dict.fromkeys(policies))}: {reason}" for reason, policies in said.items()]


def _life(row: Row) -> tuple[str, ...]:
    if row.outcome != "ok":
        return (str(row.asked["policy"]), *[NOTHING] * 15)
    found = row.figures
    speed, over, shares = found["samples_per_s"], found["first_over"], found["shares"]
    half = None if speed["high"] is None else (speed["high"] - speed["low"]) / 2
    return (
        str(row.asked["policy"]),
        *(_number(speed[name], 2) for name in ("p5", "p50", "p95")),
        f"{speed['mean']:.2f}" + ("" if half is None else f" ± {half:.2f}"),
        *(_number(over[name], 3) for name in ("p5", "p50", "p95", "mean")),
        NOTHING if over["low"] is None else f"{over['low']:.3f} to {over['high']:.3f}",
        *(f"{100 * shares[name]:.1f} %" for name in ("training", "transition", "lost", "stopped")),
        ", ".join(f"{count:.1f} {name}" for name, count in found["decisions"].items() if count) or NOTHING,
        f"{1e3 * found['decision_s']:.1f}",
    )


def plans_table(rows: Sequence[Row], axes: Sequence[str], about: str) -> Table:
    """One line for each cell and planner."""
    chosen = [row for row in rows if row.asked.get("what") == PLANS]
    head = (
        *map(axis_name, axes), "planner", "status", "objective (ms)", "gap", "cold (ms)", "longest (ms)",
        "processor (ms)", "again (ms)", "decides",
    )  # fmt: skip
    body = tuple(
        (*(shown(row.asked.get(axis)) for axis in axes), str(row.asked["policy"]), *_plan(row)) for row in chosen
    )
    return Table(f"Plans: {about}", head, body, PLANS_NOTE)


def _plan(row: Row) -> tuple[str, ...]:
    found = row.figures
    if row.outcome == "error":
        return (row.outcome, *[NOTHING] * 7)
    return (
        ", ".join(found["statuses"]),
        _number(found["objective_us"], 1, 1e-3),
        NOTHING if found["gap"] is None else f"{100 * found['gap']:.2f} %",
        *(_number(found[name], 1, 1e3) for name in ("cold_s", "longest_s", "processor_s", "again_s")),
        ", ".join(found["policies"]) or NOTHING,
    )


def _number(value: Any, digits: int, scale: float = 1.0) -> str:
    return NOTHING if value is None else f"{value * scale:,.{digits}f}"


def cell_tables(rows: Sequence[Row], axes: Sequence[str]) -> list[Table]:
    """The tables of a sweep: plans and lives of all cells, and errors."""
    tables = []
    if any(row.asked.get("what") == PLANS for row in rows):
        tables.append(plans_table(rows, axes, "all cells"))
    for label, group in _by_cell([row for row in rows if row.asked.get("what") == LIVES], axes).items():
        tables.append(lives_table(group, label))
    return tables


def _by_cell(rows: Sequence[Row], axes: Sequence[str]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        label = ", ".join(f"{axis_name(axis)} {shown(row.asked.get(axis))}" for axis in axes)
        found.setdefault(label, []).append(row)
    return found


def tables_of_rows(rows: Sequence[Row]) -> list[Table]:
    """Lives and plans of one experiment, of its rows alone."""
    asked = rows[0].asked
    about = f"{asked['shape']} on {asked['grid']} (pipelines x stages)"
    tables = []
    lives = [row.asked for row in rows if row.asked["what"] == LIVES]
    if lives:
        spent = f"{lives[0]['seeds']} times " if lives[0].get("seeds") else ""
        tables.append(lives_table(rows, f"{about}, {spent}{lives[0]['hours']:g} h"))
    if any(row.asked["what"] == PLANS for row in rows):
        tables.append(plans_table(rows, ["grid", "lost"], about))
    return tables
