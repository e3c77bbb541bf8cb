"""Which engines there are on this machine, for people to read."""

import importlib
import importlib.metadata
from dataclasses import dataclass

from solvers.engines.choice import PACKAGES, is_present
from solvers.ir.errors import EngineMissing


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """One engine: `name` as given to `solve`, its package's version (None: not installed), and its licence in words."""

    name: str
    title: str
    version: str | None
    licence: str

    @property
    def present(self) -> bool:
        """Whether it is installed."""
        return self.version is not None


_OPEN = {"highs": ("HiGHS", "MIT, open source"), "cpsat": ("CP-SAT (OR-tools)", "Apache-2.0, open source")}


def engines() -> tuple[EngineInfo, ...]:
    """Every engine that Bayplan knows; only gurobipy is imported, to ask for its licence (a twentieth of a second)."""
    found = []
    for name, package in PACKAGES.items():
        title, licence = _OPEN.get(name, ("Gurobi", "commercial"))
        if not is_present(name):
            found.append(EngineInfo(name, title, None, f"not installed: pip install {package}"))
            continue
        licence = _gurobi_licence() if name == "gurobi" else licence
        found.append(EngineInfo(name, title, _version(package), licence))
    return tuple(found)


def _version(package: str) -> str:
    """As its metadata says, which may be missing or empty where a package was copied and not installed."""
    try:
        version: str | None = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = None
    return version or "of unknown version"


def _gurobi_licence() -> str:
    try:
        state: str = importlib.import_module("solvers.engines.gurobi").licence_state()
    except EngineMissing as error:
        return str(error)
    return state
