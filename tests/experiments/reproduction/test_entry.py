"""Entries decode from YAML; each fault is one sentence with its place."""

from pathlib import Path
from typing import Any

import pytest

from experiments.reproduction.entry import entry_names, read_entry
from solvers.ir.errors import InvalidInput
from tests.experiments.reproduction.fakes import squares_entry, write_entry


def test_an_entry_survives_its_file(tmp_path: Path) -> None:
    write_entry(tmp_path, "squares", squares_entry())
    entry = read_entry("squares", tmp_path)
    assert (entry.system, entry.how, entry.parameters) == ("school", "arithmetic", {"upto": 3})
    assert [one.name for one in entry.quantities] == ["largest", "sum", "all", "sixth"]
    assert entry.function() == ("tests.experiments.reproduction.fakes", "squares")


def test_names_are_sorted_as_people_count(tmp_path: Path) -> None:
    names = ["x-figure-9a", "x-figure-9b", "x-figure-10a", "x-section-2.1", "x-section-8", "x-table-1"]
    for name in reversed(names):
        write_entry(tmp_path, name, squares_entry())
    assert entry_names(tmp_path) == names


QUANTITY: dict[str, Any] = {"name": "q", "place": "§1", "unit": "x", "of": "squares"}
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"compute": "squares"}, "write module:function"),
    ({"compute": None}, "has `compute`, or is `paper only`"),
    ({"how": "paper only", "why_not": "no such machine"}, "has `compute`, or is `paper only`"),
    ({"how": "guessed"}, "how"),
    ({"quantities": [], "shapes": []}, "needs quantities or shapes"),
    ({"quantities": [QUANTITY]}, "needs the paper's value, or `unreadable`"),
    ({"quantities": [{**QUANTITY, "of": None, "paper": {"value": 1}}]}, "lacks `of`"),
    ({"quantities": [{**QUANTITY, "paper": {}}]}, "a claim has a value, or low, high or both"),
    ({"quantities": [{**QUANTITY, "paper": {"value": 1, "low": 1}}]}, "a claim has a value, or low, high or both"),
    ({"quantities": [{**QUANTITY, "paper": {"low": 2, "high": 1}}]}, "exchange them"),
    ({"quantities": [{**QUANTITY, "paper": {"value": 1}}] * 2}, "appears twice"),
    ({"quantities": [{**QUANTITY, "paper": {"value": 1}, "takes": "max"}]}, "unknown key `takes`"),
    ({"shapes": [{"check": "oder", "claim": "c", "place": "p"}]}, "shapes"),
    ({"assumption": []}, "unknown key `assumption`"),
]


@pytest.mark.parametrize(("changes", "sentence"), FAULTS)
def test_a_fault_is_told_with_its_place(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    write_entry(tmp_path, "wrong", squares_entry(**changes))
    with pytest.raises(InvalidInput, match=sentence) as told:
        read_entry("wrong", tmp_path)
    assert str(told.value).startswith("table/wrong.yaml")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("absent", ["fitted", "assumptions", "place", "how"])
def test_nothing_that_must_be_said_has_a_default(tmp_path: Path, absent: str) -> None:
    raw = squares_entry()
    del raw[absent]
    write_entry(tmp_path, "wrong", raw)
    with pytest.raises(InvalidInput, match=f"lacks the key `{absent}`"):
        read_entry("wrong", tmp_path)


def test_a_file_that_is_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("a: [1\nb: }")
    with pytest.raises(InvalidInput, match="is no YAML file"):
        read_entry("wrong", tmp_path)
