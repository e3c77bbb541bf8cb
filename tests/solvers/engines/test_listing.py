"""What `bayplan solvers` shows of the engines."""

import importlib.metadata
import sys

import pytest

from solvers.engines import engines


def test_every_engine_is_listed_with_version_and_licence() -> None:
    listed = {info.name: info for info in engines()}
    assert list(listed) == ["highs", "cpsat", "gurobi"]
    assert all(info.present for info in listed.values())
    assert listed["highs"].version is not None
    assert listed["highs"].version.startswith("1.")
    assert "open source" in listed["cpsat"].licence
    assert listed["gurobi"].licence.startswith(("bundled, limited to 2000 columns", "no size limit"))


def test_a_missing_engine_is_listed_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gurobipy", None)
    gurobi = engines()[-1]
    assert (gurobi.present, gurobi.version, gurobi.licence) == (False, None, "not installed: pip install gurobipy")


def test_an_engine_without_metadata_is_listed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a package was copied into a folder on Python's path; a package may also state no version."""

    def missing(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr("solvers.engines.listing.importlib.metadata.version", missing)
    assert {info.version for info in engines()} == {"of unknown version"}
    monkeypatch.setattr("solvers.engines.listing.importlib.metadata.version", lambda package: None)
    assert all(info.present and info.version == "of unknown version" for info in engines())
