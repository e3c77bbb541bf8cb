"""Folders of native code include only those below them, as the map in csrc/README.md has it."""

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"
BELOW = {
    "profiler": set[str](),
    "storage": {"profiler"},
    "follow": {"profiler", "storage"},
    "step": {"profiler", "storage", "follow"},
    "session": {"profiler", "storage", "follow"},
    "recompute": {"profiler", "storage", "follow"},
    "sim": set[str](),
    "joint": set[str](),
    "replan": set[str](),
    "swap": set[str](),
}
INCLUDE = re.compile(r'^#include "(\w+)/', re.MULTILINE)


def test_every_folder_has_its_place() -> None:
    assert {folder.name for folder in CSRC.iterdir() if folder.is_dir()} == set(BELOW)


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_includes_only_those_below(folder: str) -> None:
    sources = [path for path in (CSRC / folder).iterdir() if path.suffix in (".h", ".cpp")]
    included = {name for path in sources for name in INCLUDE.findall(path.read_text())}
    assert included <= BELOW[folder] | {folder}
