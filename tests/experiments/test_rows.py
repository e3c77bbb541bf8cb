"""Rows survive their file, and say where they come from."""

import re

import pytest

from experiments.rows import commit, rows_from_text, rows_to_text
from solvers.ir import InvalidInput, Row


def row(number: int) -> Row:
    return Row(
        experiment="e",
        asked={"policy": "π", "number": number},
        outcome="ok",
        figures={"step_us": 1.5, "losses": [0.1, 0.2]},
        provenance="nowhere",
        commit=None,
        seed=number,
    )


def test_rows_come_back_as_they_were() -> None:
    rows = [row(0), row(1)]
    text = rows_to_text(rows)
    assert text.count("\n") == 2
    assert rows_from_text(text) == rows
    assert rows_from_text("\n" + text + "\n") == rows


@pytest.mark.parametrize(
    "line", ["{", '{"format": "bayplan-row/2"}', rows_to_text([row(0)]).replace('"ok"', '"fine"'), "[]"]
)
def test_a_bad_line_is_named(line: str) -> None:
    with pytest.raises(InvalidInput, match="line 2"):
        rows_from_text(rows_to_text([row(0)]) + line)


def test_the_commit_is_a_hash_or_unknown() -> None:
    assert commit() is None or re.fullmatch(r"[0-9a-f]{12}\+?", commit() or "")
