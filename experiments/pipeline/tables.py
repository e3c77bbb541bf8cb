"""Rows of a pipeline experiment as tables, and one system's stages in words."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from experiments.tables import NOTHING, Table, axis_name, shown
from solvers.ir import Row

GIB, MIB = 2**30, 2**20
SYSTEMS_NOTE = (
    "gap: to a bound on every step, whatever the mix of policies in each stage and the partition; overhead gap: the "
    "same over what the step takes longer than with memory without end. Exposed: recomputation that delays its stage; "
    "hidden: what communication and stalls hide; both and bubbles are parts of the time of all stages."
)
Show = Callable[[Row], str]


def system_table(rows: Sequence[Row], about: str) -> Table:
    """One line for each system: its cut, its step, and how far that is from the best possible one."""
    head, shows = zip(*_columns(rows), strict=True)
    body = tuple(tuple(show(row) for show in shows) for row in rows)
    return Table(f"Systems: {about}", head, body, SYSTEMS_NOTE)


def _columns(rows: Sequence[Row]) -> list[tuple[str, Show]]:
    first = next((row for row in rows if row.outcome == "ok"), None)
    over = "over –" if first is None else f"over {first.asked['policy']}"
    return [
        ("system", lambda row: str(row.asked["policy"])),
        ("layers", lambda row: "-".join(map(str, row.figures.get("layers", [NOTHING])))),
        ("step (ms)", lambda row: _number(row, lambda figures: f"{figures['makespan_us'] / 1e3:,.1f}")),
        ("samples/s", lambda row: _number(row, lambda figures: f"{figures['samples_per_s']:.2f}")),
        (over, lambda row: _number(row, lambda figures: _speedup(figures, first))),
        ("gap", lambda row: _percent(row.figures.get("gap"))),
        ("overhead gap", lambda row: _percent(row.figures.get("overhead_gap"))),
        ("exposed", lambda row: _number(row, lambda figures: _share(figures, ["critical_us"]))),
        ("hidden", lambda row: _number(row, lambda figures: _share(figures, ["window_hidden_us", "stall_hidden_us"]))),
        ("bubbles", lambda row: _number(row, lambda figures: _share(figures, ["bubble_us"]))),
        ("fullest (GiB)", lambda row: _number(row, lambda figures: f"{max(figures['peak_bytes']) / GIB:.1f}")),
        ("found in (ms)", lambda row: f"{1e3 * row.figures['solve_time_s']:.0f}"),
    ]


def _number(row: Row, show: Callable[[Mapping[str, Any]], str]) -> str:
    return show(row.figures) if row.outcome == "ok" else NOTHING


def _speedup(figures: Mapping[str, Any], first: Row | None) -> str:
    return NOTHING if first is None else f"{figures['samples_per_s'] / first.figures['samples_per_s']:.3f}"


def _share(figures: Mapping[str, Any], names: Sequence[str]) -> str:
    time_us = sum(sum(figures[name]) for name in names)
    return _percent(time_us / (len(figures["layers"]) * figures["makespan_us"]))


def _percent(part: float | None) -> str:
    return NOTHING if part is None else f"{100 * part:.1f} %"


def stage_table(row: Row) -> Table:
    """One system's stages: memory, and recomputation of a microbatch by where it happens."""
    figures = row.figures
    body = []
    for number, stage in enumerate(figures["stages"]):
        least = stage["least_critical_us"]
        body.append(
            (
                str(number),
                str(stage["layers"]),
                f"{figures['peak_bytes'][number] / GIB:.2f}",
                f"{stage['stored_bytes'] / MIB:,.0f}",
                f"{stage['forward_hidden_us'] / 1e3:.2f}",
                f"{stage['backward_hidden_us'] / 1e3:.2f}",
                f"{stage['critical_us'] / 1e3:.2f}",
                NOTHING if least is None else f"{least / 1e3:.2f}",
                _percent(figures["bubble_us"][number] / figures["makespan_us"]),
            )
        )
    head = (
        "stage",
        "layers",
        "peak (GiB)",
        "kept (MiB)",
        "hidden forward (ms)",
        "hidden backward (ms)",
        "exposed (ms)",
    )
    memory = f"{figures['budget_bytes'] / GIB:.2f} GiB"
    note = f"A device has {memory}. Kept, hidden, exposed: of one microbatch; bound: of any mix of policies."
    return Table(f"Stages of {row.asked['policy']}", (*head, "bound (ms)", "bubble"), tuple(body), note)


def stage_lines(row: Row) -> list[str]:
    """What each stage does with its layers, in words; neighbouring stages that do the same share their lines."""
    lines = []
    for alike, run in groupby(enumerate(row.figures["stages"]), key=lambda stage: _words(stage[1]["groups"])):
        numbers = [number for number, _ in run]
        stages = f"stage {numbers[0]}" if len(numbers) == 1 else f"stages {numbers[0]} to {numbers[-1]}"
        lines += [f"{stages}, {words}" for words in alike]
    return lines


def _words(groups: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """For each group of layers what is kept, and what is done again where."""
    found = []
    for group in groups:
        done = {place: names for place, names in group.items() if place not in ("layers", "keep")}
        kept = ", ".join(group["keep"]) or "nothing but its input"
        again = "".join(f"; again {place}: {', '.join(names)}" for place, names in done.items())
        count = f"{group['layers']} layer{'s' if group['layers'] > 1 else ''}"
        found.append(f"{count}: keep {kept}{again or '; nothing again'}")
    return tuple(found)


def cell_tables(rows: Sequence[Row], axes: Sequence[str]) -> list[Table]:
    """All cells of a sweep: throughput by system, and Lynx's and ours over the first one; what does not fit says so."""
    systems = list(dict.fromkeys(str(row.asked["policy"]) for row in rows if row.outcome != "error"))
    cells: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        cells.setdefault(tuple(shown(row.asked.get(axis)) for axis in axes), {})[str(row.asked["policy"])] = row
    body = tuple((*key, *(_cell(found.get(name)) for name in systems)) for key, found in cells.items())
    gaps = tuple((*key, *(_gap(found.get(name)) for name in systems)) for key, found in cells.items())
    head = (*map(axis_name, axes), *systems)
    return [
        Table("Throughput (samples/s)", head, body, "–: out of memory, or the cell failed; its row says why."),
        Table("Gap to the best possible step", head, gaps, SYSTEMS_NOTE),
    ]


def _cell(row: Row | None) -> str:
    return NOTHING if row is None else _number(row, lambda figures: f"{figures['samples_per_s']:.2f}")


def _gap(row: Row | None) -> str:
    return NOTHING if row is None else _percent(row.figures.get("gap"))


def tables_of_rows(rows: Sequence[Row]) -> list[Table]:
    """The systems, and the stages of the fastest one, of rows alone."""
    asked = rows[0].asked
    about = (
        f"{asked['shape']} on {asked['cluster']}, tensor {asked['tensor']}, pipeline {asked['pipeline']}, "
        f"{asked['microbatches']} microbatches of {asked['microbatch']} × {asked['sequence']}"
    )
    done = [row for row in rows if row.outcome == "ok"]
    fastest = max(done, key=lambda row: row.figures["samples_per_s"], default=None)
    return [system_table(rows, about), *([] if fastest is None else [stage_table(fastest)])]
