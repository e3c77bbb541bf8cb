"""What every solver of every kind must promise. A kind's brute force stands beside its tests, where it is found.

A new kind adds `tests/solvers/<kind>/brute_force.py`; the contract of a new solver is its line in the register.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from solvers.planner import SOLVERS


@dataclass(frozen=True)
class KindContract:
    """Tiny instances of a kind, their optimum by trying everything (None: infeasible), and which solvers are exact."""

    tiny: Callable[[int], Any]
    optimum: Callable[[Any], int | None]
    exact: frozenset[str]


def contract_of(kind: str) -> KindContract:
    """The contract of a kind: `random_problem` and `optimum` of the brute force beside its tests."""
    brute_force = import_module(f"tests.solvers.{kind.replace('-', '.')}.brute_force")
    exact = frozenset(name for name, entry in SOLVERS.items() if entry.kind == kind and entry.exact)
    return KindContract(brute_force.random_problem, brute_force.optimum, exact)
