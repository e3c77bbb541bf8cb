"""The entries that are shipped: well-formed, placed in their papers, and without constants in their code."""

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from experiments.reproduction.entry import Entry, entry_names, read_entry
from experiments.reproduction.run import compute_function
from experiments.reproduction.sources import ROOT, files_digest

NAMES = entry_names()
PLACE = re.compile(r"Abstract|Algorithm \d|§[\dIVX]|Figure \d|Table \d|Equations? \d|^ours$")
UNITS = {0.0, 1.0, 2.0, 100.0, 1e3, 1e6, 1e9, 3600.0, 0.5}
"""Floats that convert units, or mean a half; any other one in a compute module would be a constant out of sight."""


shipped = cache(read_entry)


@pytest.fixture(params=NAMES)
def entry(request: pytest.FixtureRequest) -> Entry:
    return shipped(request.param)


def test_every_figure_of_lynx_with_numbers_has_an_entry() -> None:
    figures = ["3a", "3b", "9a", "9b", "10a", "10b", "11", "12", "13", "14", "15", "16a", "16b", "17"]
    sections = ["1", "2.1", "2.2", "7.2", "8"]
    wanted = {f"lynx-figure-{name}" for name in figures} | {f"lynx-section-{name}" for name in sections}
    assert wanted <= set(NAMES)


def test_every_table_and_figure_of_smartswap_with_numbers_has_an_entry() -> None:
    """Figures 1, 2, 3, 5 and 9 of the longer paper are drawings; the shorter paper's are among these."""
    wanted = {f"smartswap-table-{number}" for number in (1, 2, 3, 4)}
    wanted |= {f"smartswap-figure-{number}" for number in (4, 6, 7, 8)} | {"smartswap-consistency"}
    assert wanted <= set(NAMES)


def test_every_table_and_figure_of_chameleon_with_numbers_has_an_entry() -> None:
    """Its figures 1, 2 and 5 are drawings; 9, 11 and 13 are several figures each."""
    wanted = {"figure-3", "figure-4", "retention", "simulation", "estimator", "weight-transfer", "collectives"}
    wanted |= {"memory", "convergence", "scalability", "consistency", "sensitivity", "adaptivity", "algorithm-1"}
    assert {f"chameleon-{name}" for name in wanted} == {name for name in NAMES if name.startswith("chameleon")}


def test_every_row_names_its_place(entry: Entry) -> None:
    places = [entry.place, *(one.place for one in entry.quantities), *(one.place for one in entry.shapes)]
    assert [place for place in places if not PLACE.search(place)] == []


def test_declared_files_exist(entry: Entry) -> None:
    files = [f"conf/hardware/{name}.json" for name in entry.hardware]
    files += [f"conf/model/shapes/{name}.json" for name in entry.models]
    assert files_digest(files)


def test_the_compute_function_takes_the_parameters(entry: Entry) -> None:
    if entry.compute is None:
        return
    assert callable(compute_function(entry))


def test_what_a_function_is_told_to_use_is_declared(entry: Entry) -> None:
    """A model or cluster among the parameters is also among the files that the cache watches."""
    words = _words(entry.parameters)
    shapes = {path.stem for path in (ROOT / "conf" / "model" / "shapes").glob("*.json")}
    clusters = {path.stem for path in (ROOT / "conf" / "hardware").glob("*.json")}
    assert words & shapes == set(entry.models)
    assert words & clusters == set(entry.hardware)


def test_no_constant_hides_in_the_code() -> None:
    modules = {shipped(name).function()[0] for name in NAMES if shipped(name).compute is not None}
    found = []
    for module in sorted(modules):
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            continue  # told by test_the_compute_function_takes_the_parameters
        path = Path(spec.origin)
        floats = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        found += [
            f"{path.name}:{node.lineno}: {node.value}"
            for node in floats
            if isinstance(node.value, float) and node.value not in UNITS
        ]
    assert found == [], (
        "give them as parameters of the entry, and say under `fitted` or `assumptions` where they are from"
    )


def _words(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_words, value.values()))
    if isinstance(value, list):
        return set().union(*map(_words, value))
    return {value} if isinstance(value, str) else set()
