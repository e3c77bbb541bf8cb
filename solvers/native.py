"""Native extensions that solvers are faster with, and go without where none was built."""

import importlib
from types import ModuleType


def extension(name: str) -> ModuleType | None:
    """The native extension of that name, as in "solvers.joint._annealing"; None where it was not built.

    So it is in an install without a compiler: each of them has a twin in Python, which does the same.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
