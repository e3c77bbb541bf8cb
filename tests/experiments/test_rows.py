"""Rows survive their file, and say where they come from."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from experiments.rows import commit, rows_from_text, rows_to_compact, rows_to_text
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


def test_compact_rows_say_once_what_all_have_alike() -> None:
    rows = [row(number) for number in range(20)]
    text = rows_to_compact(rows)
    assert rows_from_text(text) == rows_from_text("\n" + text) == rows
    assert text.count("nowhere") == 1 and len(text) < len(rows_to_text(rows)) / 2
    assert rows_from_text(rows_to_compact([])) == []
    assert rows_from_text(rows_to_compact(rows[:1])) == rows[:1]


def test_compact_figures_have_nine_digits_and_everything_else_is_exact() -> None:
    figures = {"third": [1 / 3, {"deep": 2e9 / 3}], "whole": 2**53 - 1, "single": float(np.float32(0.1))}
    one = msgspec.structs.replace(row(0), figures=figures, asked={"policy": 1 / 3})
    (read,) = rows_from_text(rows_to_compact([one]))
    assert read.figures["third"] == [0.333333333, {"deep": 666666667.0}]
    assert read.figures["whole"] == 2**53 - 1 and read.asked == one.asked
    (exact,) = rows_from_text(rows_to_compact([one], ["third"]))
    assert exact.figures["third"] == figures["third"] and exact.figures["single"] == read.figures["single"]
    assert np.float32(read.figures["single"]) == np.float32(0.1)


def test_values_that_only_look_alike_are_not_shared() -> None:
    """1, 1.0 and true are equal in Python, and three values in JSON."""
    values: list[Any] = [1, 1.0, True]
    rows = [msgspec.structs.replace(row(0), asked={"value": value}) for value in values]
    assert [type(one.asked["value"]) for one in rows_from_text(rows_to_compact(rows))] == [int, float, bool]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda lines: lines[:-1], "the rows holds 2 rows of 3: write the file again"),
        (lambda lines: [*lines, lines[-1]], "the rows holds 4 rows of 3"),
        (lambda lines: ['{"format": "bayplan-rows/1", "rows": 3}', *lines[1:]], "begins with no `shared`"),
        (lambda lines: [*lines[:-1], "[]"], "line 4"),
        (lambda lines: [*lines[:-1], '{"figures": {}}'], "line 4"),
        (lambda lines: [*lines[:-1], lines[-1][:20]], "line 4"),
    ],
)
def test_a_spoilt_compact_file_is_named(spoil: Callable[[list[str]], list[str]], sentence: str) -> None:
    lines = rows_to_compact([row(number) for number in range(3)]).splitlines()
    with pytest.raises(InvalidInput) as caught:
        rows_from_text("\n".join(spoil(lines)))
    assert sentence in str(caught.value)


def test_the_commit_is_a_hash_or_unknown() -> None:
    assert commit() is None or re.fullmatch(r"[0-9a-f]{12}\+?", commit() or "")
