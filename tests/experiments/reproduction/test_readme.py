"""What the page of this room shows: an entry that the format takes, and a compute function that runs."""

from pathlib import Path
from typing import Any

from experiments.reproduction.entry import read_entry
from experiments.reproduction.result import Result, Series
from tests.readmes import blocks


class FakeCells:
    """Computes at once and stores nothing."""

    def shape(self, name: str) -> str:
        return name

    def get(self, key: dict[str, Any], compute: Any, *arguments: Any) -> Any:
        return compute(*arguments)


def test_the_entry_is_taken(tmp_path: Path) -> None:
    (text,) = blocks("experiments/reproduction", "yaml")
    (tmp_path / "shown.yaml").write_text(text, encoding="utf-8")
    entry = read_entry("shown", tmp_path)
    assert entry.system == "lynx" and entry.quantities and entry.shapes


def test_the_compute_function_runs() -> None:
    (program,) = blocks("experiments/reproduction", "python")
    names: dict[str, Any] = {
        "Cells": FakeCells,
        "Result": Result,
        "Series": Series,
        "simulate": lambda shape, size: 2.0 * size,
    }
    exec(compile(program, "README.md", "exec"), names)
    result = names["figure_9"](FakeCells(), clusters=["lynx-nvlink"], models=["gpt-7b"], microbatch_sizes=[8, 16])
    assert result.series[0].points == {"gpt-7b mbs 8": 16.0, "gpt-7b mbs 16": 32.0}
