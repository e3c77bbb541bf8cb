"""Loads the native extensions on first use, and refuses one that was built for another torch.

`from runtime.device.native import core` gives `runtime._C`, and `import sim` from there `runtime._sim`; type checkers
read their stubs. C++ has no guard of its own here: an extension built for one torch release often imports under another
and computes, by luck, the right numbers, until it does not.
"""

import importlib
import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from solvers.ir.errors import InvalidInput

if TYPE_CHECKING:
    from runtime import _C as core
    from runtime import _sim as sim

__all__ = ["SIM_TORCH", "NativeMissing", "core", "load", "sim", "why_missing"]

SIM_TORCH = "2.13"
"""The torch release that `runtime._sim` is written for; setup.py builds it for no other."""

_MODULES = {"core": "runtime._C", "sim": "runtime._sim"}


class NativeMissing(InvalidInput):
    """A native extension is absent or does not fit the running torch; the text says how to build it."""


def release(version: str) -> str:
    """Returns major.minor of a torch version such as 2.13.0+cpu: within one release the C++ interface holds."""
    return ".".join(version.split(".")[:2])


def load(name: str) -> ModuleType:
    """Imports an extension by its full name, `runtime._C` or `runtime._sim`.

    Raises:
        NativeMissing: it is not built, does not load, or was built for another torch release.
    """
    running = torch.__version__
    if importlib.util.find_spec(name) is None:
        raise NativeMissing(_not_built(name, running))
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        first_line = str(error).partition("\n")[0]
        raise NativeMissing(
            f"{name} does not load under torch {running} ({first_line}): rebuild it with `make build`"
        ) from error
    built = getattr(module, "torch_version", "unknown")
    if release(built) != release(running):
        raise NativeMissing(
            f"{name} was built for torch {built}, this is torch {running}: rebuild it with `make build`"
        )
    return module


def why_missing(name: str) -> str | None:
    """Returns the sentence that says why an extension cannot be used, None where it can."""
    try:
        load(name)
    except NativeMissing as missing:
        return str(missing)
    return None


def _not_built(name: str, running: str) -> str:
    if name == _MODULES["sim"] and release(running) != SIM_TORCH:
        remedy = f"install torch {SIM_TORCH} and run `make build`"
        return f"{name}, the simulated accelerator, needs torch {SIM_TORCH}, this is torch {running}: {remedy}"
    return f"{name} is not built: install a C++ compiler and run `make build`"


def __getattr__(attribute: str) -> ModuleType:
    if attribute in _MODULES:
        return load(_MODULES[attribute])
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
