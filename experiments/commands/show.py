"""How figures are written, and tables: drawn on a terminal, plain text elsewhere."""

import sys
from collections.abc import Sequence

from experiments.printable import printable

Figures = list[tuple[str, str | None]]
"""Names and values as they are printed; None is unknown."""


def show_us(value: float | None) -> str:
    """Microseconds; a whole number without decimals, "unknown" for None."""
    if value is None:
        return "unknown"
    return f"{value:.0f} µs" if value == int(value) else f"{value:.3f} µs"


def show_share(value: float | None) -> str:
    """A fraction as percent with three significant digits; "unknown" for None."""
    return "unknown" if value is None else f"{100 * value:.3g} %"


def show_seconds(value: float) -> str:
    """Seconds with milliseconds."""
    return f"{value:.3f} s"


def print_figures(title: str, figures: Sequence[tuple[str, str | None]]) -> None:
    """Names and values, one a line, on stdout; None is written "unknown"."""
    title = printable(title)
    rows = [(name, "unknown" if value is None else printable(" ".join(value.split()))) for name, value in figures]
    if not sys.stdout.isatty():
        width = max((len(name) for name, _ in rows), default=0)
        print(title)
        for name, value in rows:
            print(f"  {name:<{width}}  {value}")
        return
    _print_rich(title, None, rows)


def print_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with headers on stdout."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(title, headers, rows)
        return
    lines = [headers, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    print(title)
    for line in lines:
        print("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_rich(title: str, headers: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", show_header=headers is not None)
    for header in headers or ("", ""):
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
