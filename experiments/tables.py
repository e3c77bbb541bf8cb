"""Tables from rows: for a terminal, as plain text and as Markdown, with the same cells."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import rich.box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from experiments.figures import Figures, figures_of
from experiments.printable import printable
from solvers.ir import Row

MIB = 2**20
NOTHING = "–"
AXES = {"problem.budget_fraction": "budget / peak", "hardware.link_gb_per_s": "link GB/s"}
"""Short names of settings that are often swept."""
Shown = Callable[[Row, Figures], str]


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column names the row, the others are aligned to the right."""

    title: str
    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    note: str = ""


def policy_tables(rows: Sequence[Row]) -> list[Table]:
    """What happened, what the solvers answered, and what other worlds did to the plans: one row per policy."""
    solved = [row for row in rows if figures_of(row.figures).status is not None]
    tried = [row for row in rows if figures_of(row.figures).noise_stall_us is not None or _other(row) is not None]
    counted = any(figures_of(row.figures).launch_us is not None for row in rows)
    passes = f" {PASSES}" if any(figures_of(row.figures).pass_us is not None for row in rows) else ""
    happened = [*HAPPENED[:STALL], LAUNCHES, *HAPPENED[STALL:]] if counted else HAPPENED
    note = (f"{PROVENANCE} {LAUNCHED}" if counted else PROVENANCE) + passes + _allocators(rows)
    tables = [_table("What happened", happened, rows, note)]
    if solved:
        tables.append(_table("What the solvers answered", ANSWERED, solved, BOUNDS + passes))
    if tried:
        tables.append(_table("The same plans in other worlds", ELSEWHERE, tried, WORLDS))
    return tables


def _allocators(rows: Sequence[Row]) -> str:
    """A word on allocators that hold segments; nothing on the default one."""
    named = dict.fromkeys(str(row.asked["allocator"]) for row in rows if "allocator" in row.asked)
    return f" Allocator: {', '.join(named)} ({SEGMENTS})." if named else ""


def sweep_tables(rows: Sequence[Row], axes: Sequence[str], note: str) -> list[Table]:
    """One line per cell and solver; with two axes also a grid of each solver's step time over the unlimited one's."""
    columns: list[tuple[str, Shown]] = [(axis_name(axis), _asked(axis)) for axis in axes]
    columns += [("policy", _policy), *HAPPENED[1:8], ("objective (µs)", _objective), ("overhead gap", _overhead_gap)]
    columns += [("least (MiB)", _least_budget)]
    worth = [row for row in rows if "status" in row.figures or row.outcome not in ("ok", "out-of-memory")]
    tables = [_table("All cells", columns, worth, f"{PROVENANCE} {note}")]
    if len(axes) == 2:
        solvers = list(dict.fromkeys(_policy(row, Figures()) for row in rows if "status" in row.figures))
        tables += [_grid(solver, rows, axes) for solver in solvers]
    return tables


def axis_name(setting: str) -> str:
    """A swept setting as a heading."""
    return AXES.get(setting, setting.rpartition(".")[2])


def shown(value: object) -> str:
    """A swept value without needless zeros."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def to_terminal(console: Console, tables: Sequence[Table]) -> None:
    """Print the tables; a console narrower than a table gets it unwrapped all the same."""
    for table in tables:
        drawn = RichTable(title=_text(table.title), box=rich.box.SIMPLE_HEAD, title_justify="left", title_style="bold")
        for number, name in enumerate(table.head):
            drawn.add_column(_text(name), justify="right" if number else "left", no_wrap=True)
        for line in table.body:
            drawn.add_row(*(_text(cell) for cell in line))
        # Piped into a file or a narrow terminal, a cut table would be worse than a wide one.
        console.width = max(console.width, console.measure(drawn, options=console.options.update(width=400)).maximum)
        console.print(drawn)
        if table.note:
            console.print(_text(table.note, "dim"))


def say(console: Console, sentence: str) -> None:
    """Print a sentence as it is, unwrapped."""
    console.print(_text(sentence), highlight=False, soft_wrap=True)


def _text(text: str, style: str = "") -> Text:
    """What commands a terminal is escaped; line breaks stay."""
    return Text("\n".join(printable(line) for line in text.split("\n")), style=style)


def to_text(tables: Sequence[Table]) -> str:
    """The tables as plain text."""
    console = Console(file=io.StringIO(), width=240, color_system=None, force_terminal=False)
    with console.capture() as capture:
        to_terminal(console, tables)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()).strip() + "\n"


def to_markdown(tables: Sequence[Table]) -> str:
    """The tables as Markdown."""
    return "\n".join(_markdown(table) for table in tables)


def _markdown(table: Table) -> str:
    lines = [f"**{table.title}**", "", _markdown_line(table.head)]
    lines.append("|" + "|".join("---:" if number else "---" for number in range(len(table.head))) + "|")
    lines += [_markdown_line(line) for line in table.body]
    lines += ["", table.note] if table.note else []
    return "\n".join(lines) + "\n"


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _table(title: str, columns: Sequence[tuple[str, Shown]], rows: Sequence[Row], note: str) -> Table:
    figures = [figures_of(row.figures) for row in rows]
    body = tuple(tuple(show(row, one) for _, show in columns) for row, one in zip(rows, figures, strict=True))
    return Table(title, tuple(name for name, _ in columns), body, note)


def _grid(solver: str, rows: Sequence[Row], axes: Sequence[str]) -> Table:
    """Step time over the unlimited one; the second axis goes across."""
    down, across = (list(dict.fromkeys(row.asked.get(axis) for row in rows)) for axis in axes)
    found = {(row.asked.get(axes[0]), row.asked.get(axes[1])): row for row in rows if _policy(row, Figures()) == solver}
    body = tuple((shown(one), *(_grid_cell(found.get((one, other))) for other in across)) for one in down)
    head = (f"{axis_name(axes[0])} \\ {axis_name(axes[1])}", *map(shown, across))
    return Table(f"{solver}: step time over unlimited", head, body)


def _grid_cell(row: Row | None) -> str:
    if row is None:
        return NOTHING
    figures = figures_of(row.figures)
    if row.outcome == "infeasible":
        return f"needs {_mib(figures.least_budget_bytes)} MiB"
    return row.outcome if figures.ratio is None else f"{figures.ratio:.3f}"


def _policy(row: Row, _: Figures) -> str:
    return str(row.asked.get("policy", NOTHING))


def _asked(axis: str) -> Shown:
    return lambda row, _: shown(row.asked.get(axis, NOTHING))


def _mib(size: int | None) -> str:
    return NOTHING if size is None else f"{size / MIB:.1f}"


def _ms(time_us: float | None, sign: str = "") -> str:
    return NOTHING if time_us is None else f"{time_us / 1e3:{sign}.3f}"


def _percent(share: float | None, digits: int = 1, sign: str = "") -> str:
    return NOTHING if share is None else f"{round(100 * share, digits) + 0.0:{sign}.{digits}f} %"  # no minus zero


def _count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _objective(_: Row, figures: Figures) -> str:
    return _count(figures.objective_us)


def _overhead_gap(_: Row, figures: Figures) -> str:
    return _percent(figures.overhead_gap)


def _least_budget(_: Row, figures: Figures) -> str:
    return _mib(figures.least_budget_bytes)


def _other(row: Row) -> float | None:
    return figures_of(row.figures).other_stall_us


def _equal(_: Row, figures: Figures) -> str:
    """The losses' equality; parameters and gradients are mentioned only where they disagree with it."""
    if figures.equal_losses is None:
        return NOTHING
    if not figures.equal_losses:
        return "no"
    worse = [
        name
        for name, same in (("parameters", figures.equal_parameters), ("gradients", figures.equal_gradients))
        if same is False
    ]
    return "losses only" if worse else "yes"


def _peak(figures: Figures) -> int | None:
    """The peak of a run that finished: how far a failing one came says nothing."""
    return figures.peak_bytes if figures.step_us is not None else None


def _share(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None


def _growth(stall: float | None, figures: Figures) -> str:
    if stall is None or figures.stall_us is None:
        return NOTHING
    return f"{_ms(stall - figures.stall_us, '+')} ({_percent(_stall_growth_share(stall, figures), 1, '+')})"


def _stall_growth_share(stall: float, figures: Figures) -> float | None:
    if figures.stall_us is None or not figures.unlimited_us:
        return None
    return (stall - figures.stall_us) / figures.unlimited_us


def _of_plan(figures: Figures, share: float | None, digits: int = 1) -> str:
    """A share that compares a step with its plan: nothing where the step was another one."""
    return NOTHING if figures.as_planned is False else _percent(share, digits, "+")


HAPPENED: list[tuple[str, Shown]] = [
    ("policy", _policy),
    ("outcome", lambda row, figures: "ok, not as planned" if figures.as_planned is False else row.outcome),
    ("peak (MiB)", lambda _, figures: _mib(_peak(figures))),
    ("of budget", lambda _, figures: _percent(_share(_peak(figures), figures.budget_bytes))),
    ("step (ms)", lambda _, figures: _ms(figures.step_us)),
    ("× unlimited", lambda _, figures: NOTHING if figures.ratio is None else f"{figures.ratio:.3f}"),
    ("stall", lambda _, figures: _percent(figures.stall_share)),
    ("bit-equal", _equal),
    ("vs predicted", lambda _, figures: _of_plan(figures, figures.deviation, 2)),
]
STALL = 7
"""The column of the table of what happened behind which the share of launches stands, where it is known."""
LAUNCHES: tuple[str, Shown] = ("launches", lambda _, figures: _of_plan(figures, figures.launch_share))
ANSWERED: list[tuple[str, Shown]] = [
    ("policy", _policy),
    ("status", lambda _, figures: figures.status or NOTHING),
    ("objective (µs)", _objective),
    ("bound (µs)", lambda _, figures: _count(figures.bound_us)),
    ("gap", lambda _, figures: _percent(figures.gap, 2)),
    ("overhead gap", _overhead_gap),
    ("solver (s)", lambda _, figures: NOTHING if figures.solve_time_s is None else f"{figures.solve_time_s:.3f}"),
    ("swapped (MiB)", lambda _, figures: _mib(figures.swapped_bytes)),
    ("least (MiB)", _least_budget),
    ("engine", lambda _, figures: figures.engine or NOTHING),
]
ELSEWHERE: list[tuple[str, Shown]] = [
    ("policy", _policy),
    ("stall as planned (ms)", lambda _, figures: _ms(figures.stall_us)),
    ("growth under noise (ms)", lambda _, figures: _growth(figures.noise_stall_us, figures)),
    ("at worst (ms)", lambda _, figures: _growth(figures.noise_worst_us, figures)),
    ("growth on other hardware (ms)", lambda _, figures: _growth(figures.other_stall_us, figures)),
]
PROVENANCE = (
    "Peak and step: executed. Stall: the compute lane waits for transfers, over the unlimited step. Bit-equal: losses, "
    "gradients, parameters torch.equal to the unlimited run's. Vs predicted: (executed − simulated step) / executed."
)
LAUNCHED = (
    "Launches: it waits for the host, less the same in the unlimited step (while it stalls, the host runs ahead); "
    "step = unlimited + stall + launches."
)
PASSES = "Of joint plans all that is predicted is of the forward and backward pass."
SEGMENTS = "modelled: budgets and least ones are of segments, peaks of bytes in use"
BOUNDS = (
    "Objective: predicted step time. Gap: (objective − bound) / objective; overhead gap: (objective − bound) / "
    "(objective − base), base: the step without a budget. Least: the least feasible budget."
)
WORLDS = "Growth: stall there less stall as planned, in brackets over the unlimited step as planned."
