"""Rows of any kind of experiment as that kind's own tables; where they do not fit them, as what they say at least."""

from collections.abc import Sequence

from experiments.kinds import study_of, tables_of_kind
from experiments.reporting.folder import Found
from experiments.reporting.provenance import UNKNOWN, how_of_rows
from experiments.tables import Table
from solvers.ir import InvalidInput, Row

MOST_LINES = 500
"""Lines of a table that a page shows; the folder's rows hold all."""
MOST_LETTERS = 400
"""Letters of a cell."""
AT_FAULT = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, OverflowError, InvalidInput,
    RecursionError,
)  # fmt: skip
"""What a table raises of rows that another version wrote, or that someone changed."""
SOLVED = ("What the solvers answered", "Plans:", "Gap to")
"""How the titles of tables begin whose figures are solvers' answers."""
TOLD = (
    "These rows are not as this version writes them (another one's, or changed by hand), so they are shown as they are."
)
NO_KIND = "The folder does not say what kind of experiment its run was, so they are shown as they are."
MOST_SENTENCE = 2000
"""Letters of a sentence that a page shows."""


def tables_of(found: Found) -> list[Table]:
    """What the rows say; of none nothing."""
    if not found.rows:
        return []
    try:
        tables = _sweep_tables(found) if found.cells is not None else tables_of_kind(found.kind, found.rows)
    except AT_FAULT:
        tables = [_plain(found.rows, NO_KIND if found.kind == UNKNOWN else TOLD)]
    return [shortened(table) for table in tables]


def reasons_of(rows: Sequence[Row], axes: Sequence[str] = ()) -> list[tuple[str, str, str]]:
    """Of each row that has something to say: who, its outcome, and the sentence; failures first."""
    told = []
    for row in rows:
        if row.reason or row.outcome != "ok":
            places = [f"{axis.rpartition('.')[2]} {row.asked.get(axis)}" for axis in axes]
            who = ", ".join([str(row.asked.get("policy", row.experiment)), *places])
            told.append((cut(who), cut(row.outcome), cut(row.reason or "no reason is given")))
    return sorted(told, key=lambda one: one[1] == "ok")


def paper_table(found: Found) -> Table | None:
    """A paper's own figures beside ours, where the settings name them, and the run was of what the paper ran.

    A run on a trace of one's own has nothing to do with the paper's.
    """
    paper = found.values.get("paper")
    if found.values.get("trace") is not None or any(row.asked.get("trace") is not None for row in found.rows):
        return None
    if not isinstance(paper, dict) or not paper:
        return None
    body = []
    for row in found.rows:
        name, ours = str(row.asked.get("policy")), row.figures.get("first_over")
        if name in paper and isinstance(ours, dict) and isinstance(ours.get("mean"), int | float):
            printed = paper[name] if isinstance(paper[name], int | float) else "–"
            body.append((name, f"{ours['mean']:.3f}", f"{printed}"))
    head = ("first policy over", "ours (simulated)", "paper")
    return (
        Table("Beside the paper", head, tuple(body), "The paper's: as printed there, of its own runs.")
        if body
        else None
    )


def how_of(rows: Sequence[Row], table: Table) -> str:
    """Whether a table's figures were executed, sim-executed, simulated or solved."""
    return "solved" if table.title.startswith(SOLVED) else how_of_rows(rows)


def cut(text: str, most: int = MOST_SENTENCE) -> str:
    """A text that a page can hold; what is left out is said."""
    return text if len(text) <= most else f"{text[:most]} … cut"


def _sweep_tables(found: Found) -> list[Table]:
    assert found.cells is not None
    return study_of(found.kind).sweep_tables(found.rows, list(found.cells.axes))


def _plain(rows: Sequence[Row], note: str) -> Table:
    """Policy, outcome, and every figure that is one number or word."""
    names = list(dict.fromkeys(name for row in rows for name, value in row.figures.items() if _is_one(value)))
    body = tuple(
        (
            str(row.asked.get("policy", row.experiment)),
            row.outcome,
            *(str(value) if _is_one(value := row.figures.get(name)) else "–" for name in names),
        )
        for row in rows
    )
    return Table("Rows", ("policy", "outcome", *names), body, note)


def _is_one(value: object) -> bool:
    return isinstance(value, bool | int | float | str)


def shortened(table: Table) -> Table:
    """A table that a page can hold."""
    body = tuple(tuple(_cut(cell) for cell in line) for line in table.body[:MOST_LINES])
    note = table.note
    if len(table.body) > MOST_LINES:
        note = f"The first {MOST_LINES} of {len(table.body)} lines. {note}"
    return Table(_cut(table.title), tuple(map(_cut, table.head)), body, note)


def _cut(text: str) -> str:
    return cut(text, MOST_LETTERS)
