"""Shapes by name or path."""

from pathlib import Path

import pytest

from experiments.shapes import SHIPPED, read_shape, shape_names
from solvers.ir import InvalidInput


def test_every_shipped_file_carries_its_own_name() -> None:
    assert shape_names()
    assert [read_shape(name).name for name in shape_names()] == shape_names()


def test_what_looks_like_a_path_is_never_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("gpt-7b.json", "./gpt-7b.json", "conf/gpt-7b"):
        with pytest.raises(InvalidInput, match="cannot read"):
            read_shape(path)
    Path("own").write_text((SHIPPED / "gpt-7b.json").read_text().replace('"gpt-7b"', '"own"'))
    assert read_shape("own").name == "own"
