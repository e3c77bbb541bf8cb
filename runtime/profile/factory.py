"""Finds the user's model: `MODULE:FACTORY` names a function that builds a model, an optimizer and a training step."""

import difflib
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import NamedTuple, TypeVar

import torch

from runtime.device import sim_hardware
from solvers.ir.errors import BayplanError, InvalidInput
from solvers.ir.hardware import Hardware

ResultT = TypeVar("ResultT")
LIKE = 0.6
"""How alike two names must be for the one to be taken for a slip of the other; so many have nothing in common."""
NAMED = 8
"""The most functions of a module that a sentence names."""
SHOWN = 400
"""The longest text of a foreign error that a sentence quotes: some write pages."""
PARTS = "it must return (model, optimizer, step)"
COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch")
"""Where the errors of torch.compile are defined."""
SHAPES_REFUSAL = "device sim works on shapes only"
"""What the extension's sentences say where it refuses (csrc/sim/shapes.cpp)."""
LIBRARY = sysconfig.get_paths()["stdlib"]


class Training(NamedTuple):
    """What a factory returns. `step()` runs one full training step and returns the loss, a tensor."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], torch.Tensor]


def load_factory(spec: str) -> Callable[[torch.device], Training]:
    """The factory that `MODULE:FACTORY` names, looked up in the working directory and on Python's path.

    The result takes a device, calls the user's function with it and checks what it returns: a model that is on the
    device and not compiled, an optimizer with parameters, a step that needs no argument. Raises `InvalidInput` if
    there is no such module or function; what the user's code raises when called passes through.
    """
    module_name, separator, attribute = spec.partition(":")
    if not separator or not module_name or not attribute:
        raise InvalidInput(f"{spec!r} names no factory: write MODULE:FACTORY, as in my_package.training:build")
    module = _import(module_name)
    factory = getattr(module, attribute, None)
    if factory is None:
        named = _factories(module)
        near = difflib.get_close_matches(attribute, named, 1, LIKE)
        more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        known = f"choose of {', '.join(named[:NAMED])}{more}" if named else "no function is defined in it: write one"
        hint = f"did you mean {near[0]!r}?" if near else known
        raise InvalidInput(f"module {module_name!r} has no {attribute!r}: {hint}")
    if not callable(factory):
        raise InvalidInput(f"{spec!r} is a {type(factory).__name__}, not a function: name one that takes a device")
    return lambda device: _usable(_checked(_called(factory, device, spec), spec), device, spec)


def _factories(module: ModuleType) -> list[str]:
    """The functions and classes that are defined there, not imported."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_") and callable(value)}
    return [name for name, value in public.items() if getattr(value, "__module__", None) == module.__name__]


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
        if type(error).__module__.startswith(COMPILERS):
            raise InvalidInput(
                f"{what} uses torch.compile, which failed here ({type(error).__name__}) and whose kernels no profiler "
                "of operators sees: run it uncompiled"
            ) from error
        if shapes_refusal(error):
            raise InvalidInput(f"{what}: {_first_line(error)}") from error
        raise InvalidInput(f"{what} raised {told(error)}: correct it") from error


def shapes_refusal(error: BaseException) -> bool:
    """Whether device sim refused what needs numbers, as it has shapes only; also once `call_theirs` has told it."""
    return isinstance(error, RuntimeError | InvalidInput) and SHAPES_REFUSAL in _text(error)


def _first_line(error: BaseException) -> str:
    return _text(error).split("\n", 1)[0]


def told(error: BaseException) -> str:
    """An error's type, the last line that is in no library, and its text: `ValueError at model.py:7 (no data)`."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None and _is_theirs(place.tb_next.tb_frame):
        place = place.tb_next
    where = "" if place is None else f" at {Path(_file(place.tb_frame)).name}:{place.tb_lineno}"
    return f"{type(error).__name__}{where} ({_text(error)})"


def _text(error: BaseException) -> str:
    """The error's own text, if it can be formed."""
    try:
        text = str(error)
    except Exception:
        return "its text cannot be shown"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _is_theirs(frame: FrameType) -> bool:
    """Whether the frame is not in a library: the last such one is the line to look at."""
    file = _file(frame)
    return "site-packages" not in file and not file.startswith((LIBRARY, "<frozen "))


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
            remedy = f"leave out .py, as in {name[:-3]}:FACTORY" if name.endswith(".py") else "correct it"
            raise InvalidInput(f"there is no module {name!r} in {folder} or on Python's path: {remedy}") from error
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


def _called(factory: Callable[..., object], device: torch.device, spec: str) -> object:
    """What the factory returns; refuses one that sets the device up anew, with other memory and another clock."""
    before = _set_up(device)
    returned = _call(factory, device, spec)
    if _set_up(device) is not before:
        raise InvalidInput(
            f"{spec!r} calls use_sim, but device {device} is set up already: leave it out, and use the device given"
        )
    return returned


def _set_up(device: torch.device) -> Hardware | None:
    return sim_hardware() if device.type == "sim" else None


def _checked(returned: object, spec: str) -> Training:
    if not isinstance(returned, tuple) or len(returned) != 3:
        raise InvalidInput(f"{spec!r} returned {_described(returned)}: {PARTS}")
    model, optimizer, step = returned
    if not isinstance(model, torch.nn.Module):
        raise InvalidInput(f"{spec!r} returned {_described(model)} as model, not a torch.nn.Module: {PARTS}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidInput(
            f"{spec!r} returned {_described(optimizer)} as optimizer, not a torch.optim.Optimizer: {PARTS}"
        )
    if not callable(step):
        raise InvalidInput(f"{spec!r} returned {_described(step)} as step, not a function: {PARTS}")
    return Training(model, optimizer, step)


def _usable(training: Training, device: torch.device, spec: str) -> Training:
    """Refuse what could be called but not measured: each of these trains nothing on the device, or unseen."""
    model, optimizer, step = training
    if any(_is_compiled(part) for part in (step, *model.modules())):
        raise InvalidInput(
            f"{spec!r} uses torch.compile, whose kernels no profiler of operators sees: return the eager model and step"
        )
    _require_weights(list(model.parameters()), device, spec)
    if not any(group["params"] for group in optimizer.param_groups):
        raise InvalidInput(f"{spec!r} returned an optimizer without parameters: give it model.parameters()")
    if inspect.isgeneratorfunction(step) or inspect.iscoroutinefunction(step):
        raise InvalidInput(
            f"{spec!r} returned a step that yields or awaits, so that a call of it trains nothing: return a plain "
            "function, as lambda: next(generator)"
        )
    needed = _needed_arguments(step)
    if needed:
        raise InvalidInput(
            f"{spec!r} returned a step that needs {', '.join(needed)}: let it take no argument and keep its data itself"
        )
    return training


def _require_weights(weights: Sequence[torch.nn.Parameter], device: torch.device, spec: str) -> None:
    """Refuse a model without weights, or with none on the device; some may stay on the host on purpose."""
    if not weights:
        raise InvalidInput(
            f"{spec!r} returned a model without parameters, so there is nothing to train: return the module that holds "
            "the weights"
        )
    if all(weight.device.type != device.type for weight in weights):
        raise InvalidInput(
            f"{spec!r} was given device {device}, but its model is on {weights[0].device}: move it there before the "
            "optimizer is made, as in model.to(device)"
        )


def _is_compiled(part: object) -> bool:
    """A module or function that `torch.compile` made, or a module whose calls it has taken over."""
    return (
        hasattr(part, "_orig_mod")
        or hasattr(part, "_torchdynamo_orig_callable")
        or getattr(part, "_compiled_call_impl", None) is not None
    )


def _needed_arguments(step: Callable[..., object]) -> list[str]:
    """The names of arguments that a call must give; none where the signature cannot be known."""
    try:
        known = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return []
    given_by_caller = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in known if one.default is one.empty and one.kind not in given_by_caller]


def _described(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"
