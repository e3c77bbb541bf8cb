"""Offloading of saved tensors by others: PyTorch's own, and two libraries' with streams, where they are installed."""

import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from solvers.ir.errors import InvalidInput

Around = Callable[[torch.nn.Module], Callable[[], AbstractContextManager[object]]]
"""Given the model, what makes the context around each step."""
TORCHTUNE = ("torchtune", "training/_activation_offloading.py")
TRL = ("trl", "models/activation_offloading.py")


def nothing(_: torch.nn.Module) -> Callable[[], AbstractContextManager[object]]:
    """No context."""
    return nullcontext


def save_on_cpu(_: torch.nn.Module) -> Callable[[], AbstractContextManager[object]]:
    """PyTorch's hooks, to page-locked memory."""
    return lambda: torch.autograd.graph.save_on_cpu(pin_memory=True)


def torchtune(model: torch.nn.Module) -> Callable[[], AbstractContextManager[object]]:
    """torchtune's hooks, with a stream of their own."""
    return _managed(model, *TORCHTUNE)


def trl(model: torch.nn.Module) -> Callable[[], AbstractContextManager[object]]:
    """TRL's hooks, with a stream of their own."""
    return _managed(model, *TRL)


def _managed(model: torch.nn.Module, library: str, file: str) -> Callable[[], AbstractContextManager[object]]:
    """One manager for the whole run, as the library's trainer has it; parameters stay where they are."""
    manager = _load(library, file).OffloadActivations(use_pin_memory=True, use_streams=True)
    if hasattr(manager, "update_model_params"):
        manager.update_model_params(model)
    context: AbstractContextManager[object] = manager
    return lambda: context


def _load(library: str, file: str) -> Any:
    """The library's module from its file: the library as a whole imports much that offloading does not need."""
    found = importlib.util.find_spec(library)
    place = None if found is None or not found.submodule_search_locations else found.submodule_search_locations[0]
    if place is None:
        raise InvalidInput(f"{library} is not installed")
    path = Path(place) / file
    name = f"bayplan_rival_{library}"
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidInput(f"{library} has no {file}: this release keeps it elsewhere")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise InvalidInput(f"{library}'s offloading does not import ({error})") from error
    return module
