"""Finds the user's model: `MODULE:FACTORY` names a function that builds a model, an optimizer and a training step."""

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import NamedTuple, TypeVar

import torch

from solvers.ir.errors import BayplanError, InvalidInput

ResultT = TypeVar("ResultT")


class Training(NamedTuple):
    """What a factory returns. `step()` runs one full training step and returns the loss, a tensor."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], torch.Tensor]


def load_factory(spec: str) -> Callable[[torch.device], Training]:
    """The factory that `MODULE:FACTORY` names, looked up in the working directory and on Python's path.

    The result takes a device, calls the user's function with it and checks what it returns. Raises `InvalidInput` if
    there is no such module or function; what the user's code raises when called passes through.
    """
    module_name, separator, attribute = spec.partition(":")
    if not separator or not module_name or not attribute:
        raise InvalidInput(f"{spec!r} names no factory: write MODULE:FACTORY, as in my_package.training:build")
    module = _import(module_name)
    factory = getattr(module, attribute, None)
    if factory is None:
        near = difflib.get_close_matches(attribute, [name for name in dir(module) if not name.startswith("_")], 1, 0.0)
        hint = f"did you mean {near[0]!r}?" if near else "it is empty"
        raise InvalidInput(f"module {module_name!r} has no {attribute!r}: {hint}")
    if not callable(factory):
        raise InvalidInput(f"{spec!r} is a {type(factory).__name__}, not a function: name one that takes a device")
    return lambda device: _checked(_call(factory, device, spec), spec)


def call_theirs(call: Callable[[], ResultT], what: str) -> ResultT:
    """Call the user's code; what it raises becomes an `InvalidInput` that names `what` and the user's line.

    `sys.exit` in it too, which else would end the command without a word, and whatever else is no `Exception`. Ctrl-C
    passes through, and so does out of memory: it is an answer about a budget, not a fault of the code.
    """
    try:
        return call()
    except (BayplanError, torch.OutOfMemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None and "site-packages" not in _file(place.tb_next.tb_frame):
            place = place.tb_next
        where = "" if place is None else f" at {Path(_file(place.tb_frame)).name}:{place.tb_lineno}"
        raise InvalidInput(f"{what} raised {type(error).__name__}{where} ({_text(error)}): correct it") from error


def _text(error: BaseException) -> str:
    """What it says of itself, if it can."""
    try:
        return str(error)
    except Exception:
        return "its text cannot be shown"


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _import(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise InvalidInput(f"there is no module {name!r} in {folder} or on Python's path: correct it") from error
        raise InvalidInput(f"module {name!r} needs {error.name!r}, which is not installed: install it") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise InvalidInput(f"module {name!r} cannot be imported: {type(error).__name__}: {_text(error)}") from error


def _call(factory: Callable[..., object], device: torch.device, spec: str) -> object:
    signature = inspect.signature(factory)
    for positional, keywords in (((), {"device": device}), ((device,), {})):
        try:
            signature.bind(*positional, **keywords)
        except TypeError:
            continue
        return factory(*positional, **keywords)
    raise InvalidInput(f"{spec!r} takes {signature}, but is called with a device: let it take `device` only")


def _checked(returned: object, spec: str) -> Training:
    if not isinstance(returned, tuple) or len(returned) != 3:
        raise InvalidInput(f"{spec!r} returned {_described(returned)}: it must return (model, optimizer, step)")
    model, optimizer, step = returned
    if not isinstance(model, torch.nn.Module):
        raise InvalidInput(f"{spec!r} returned {_described(model)} as model, not a torch.nn.Module")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidInput(f"{spec!r} returned {_described(optimizer)} as optimizer, not a torch.optim.Optimizer")
    if not callable(step):
        raise InvalidInput(f"{spec!r} returned {_described(step)} as step, not a function without arguments")
    return Training(model, optimizer, step)


def _described(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"
