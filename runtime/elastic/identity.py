"""What decides what a process computes, told part by part: processes that differ in any part must not train together.

A part that only one side can tell is not compared: code that pytest has rewritten, or that `python -O` has cut.
"""

import hashlib
import inspect
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import msgspec
import torch
from torch import Tensor

from runtime.elastic.job import ElasticJob
from runtime.elastic.layer import Layer

Identity = dict[str, str]
"""By part, in words that end a sentence; what begins with `#` is a digest."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LONGEST, _DEEPEST = 60, 3
_CODE = "the code of "
_RUNTIME = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
"""Of this package, as it is when it is imported."""


def identity_of(name: str, job: ElasticJob, canonical: bool) -> Identity:
    """Of this process with the job `MODULE:FACTORY`. Makes each layer once, one after the other, with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # some ways to draw weights give other bits with more
    try:
        with torch.random.fork_rng(devices=[]):
            layers = [_layer_parts(job, number) for number in range(len(job.layers))]
            first = job.batches(0, 0)
    finally:
        torch.set_num_threads(threads)
    modules = sorted({name.partition(":")[0], *_modules(job), *(one for found, _ in layers for one in found)})
    found = {
        "torch's version": str(torch.__version__),
        "Python's version": platform.python_version(),
        f"{_CODE}Bayplan": f"#{_RUNTIME.hexdigest()[:16]}",
        **{f"{_CODE}{one}": code for one in modules if (code := code_of(sys.modules.get(one)))},
        "the default type of numbers": str(torch.get_default_dtype()),
        "the sums of gradients": "in fixed point" if canonical else "in floating point",
        "the number of layers": str(len(job.layers)),
        "the microbatches of a step": str(job.microbatches),
        "the seed": str(job.seed),
        "the loss": described(job.loss),
        "the batches": described(job.batches),
        "the first microbatch": _digest(_bits(first)),
    }
    for _, parts in layers:
        found |= parts
    return {part: _short(value) for part, value in found.items()}


def difference(mine: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """The first part that differs, with both values, and how many more; empty where none does."""
    told = {part: mine.get(part, value if part.startswith(_CODE) else "nothing") for part, value in expected.items()}
    parts = [part for part, value in expected.items() if told[part] != value]
    if not parts:
        return ""
    part, more = parts[0], len(parts) - 1
    values = "" if told[part].startswith("#") else f" ({told[part]}, not {expected[part]})"
    return f"{part}{values}" + (f" and in {more} more" if more else "")


def version_of(name: str) -> str:
    """Tells versions of torch and of the job's module apart, whatever the job's settings are."""
    code = code_of(import_module(name.partition(":")[0])) or name  # its name must do
    return hashlib.sha256(f"{torch.__version__}\n{name}\n{code}".encode()).hexdigest()[:16]


def _layer_parts(job: ElasticJob, number: int) -> tuple[set[str], Identity]:
    """The modules that a layer's code is in, and its parts."""
    layer = Layer(job, number, canonical=False)
    state = {name: one for name, one in layer.module.state_dict().items() if isinstance(one, Tensor)}
    trained = {name for name, one in layer.module.named_parameters() if one.requires_grad}
    shapes = [f"{name} {one.dtype} {tuple(one.shape)} {name in trained};" for name, one in state.items()]
    made = _ADDRESS.sub("", repr(layer.module)) + described(job.layers[number])
    of = f"of layer {number}"
    parts = {
        f"the modules {of}": _digest([made.encode()]),
        f"the names, types and shapes {of}": _digest([one.encode() for one in shapes]),
        **{f"{what} {of}": value for what, value in _settings(layer.optimizer).items()},
        f"the first weights {of}": _digest(_bits(state.values())),
    }
    return {type(one).__module__ for one in layer.module.modules() if _is_own(type(one))}, parts


def _settings(optimizer: torch.optim.Optimizer | None) -> Identity:
    """The optimizer's class, and its settings by name, for each group of parameters."""
    if optimizer is None:
        return {}
    found = {"the optimizer": type(optimizer).__qualname__}
    for number, group in enumerate(optimizer.param_groups):
        which = f" in group {number}" if number else ""
        for key, value in sorted(group.items()):
            if key != "params":
                plain = value.tolist() if isinstance(value, Tensor) else value
                found[f"the optimizer's {key}{which}"] = described(plain)
    return found


def _bits(values: Iterable[Tensor]) -> Iterator[bytes | memoryview]:
    """Type, shape and bits of each."""
    for value in values:
        plain = value.detach().cpu().contiguous()
        yield f"{plain.dtype} {tuple(plain.shape)} ".encode()
        yield plain.view(-1).view(torch.uint8).numpy().data


def described(value: object, depth: int = 0) -> str:
    """Words that are the same in each process: plain values, functions with what they were given, else a type."""
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, str) and os.sep in value:
        return "a path"  # which may be another one in each process
    if value is None or isinstance(value, bool | int | float | complex | str | torch.dtype | torch.device | Enum):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"({', '.join(described(one, depth + 1) for one in value)})"
    if isinstance(value, dict):
        return f"({', '.join(f'{key}={described(one, depth + 1)}' for key, one in value.items())})"
    if isinstance(value, partial):
        given = [*value.args, *([value.keywords] if value.keywords else [])]
        return f"{described(value.func, depth + 1)}{described(given, depth + 1)}"
    if isinstance(value, FunctionType):
        held = [*(value.__defaults__ or ()), *_held(value)]
        return f"{value.__module__}.{value.__qualname__}" + (described(held, depth + 1) if held else "")
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}" + (described(_fields(value), depth + 1) if _fields(value) else "")


def _fields(value: object) -> dict[str, object]:
    """Of what is data and no more."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return {}


def _held(function: FunctionType) -> Iterator[object]:
    """What a function's body refers to of the functions around it."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            yield None


def _modules(job: ElasticJob) -> Iterator[str]:
    """Where loss, batches and optimizer are defined, but torch's, which has a version."""
    for one in (job.loss, job.batches, job.optimizer):
        plain = one.func if isinstance(one, partial) else one
        kind = plain if isinstance(plain, FunctionType | type) else type(plain)
        if _is_own(kind):
            yield kind.__module__


def _is_own(kind: type | FunctionType) -> bool:
    top = kind.__module__.partition(".")[0]
    return top not in ("torch", "__main__") and top not in sys.stdlib_module_names


def code_of(module: ModuleType | None) -> str:
    """Of the functions and classes that a module has in memory, whatever its file says by now.

    Empty where these may not be as written: something else than Python has loaded the module, or asserts were cut.
    """
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    if module is None or type(loader) is not SourceFileLoader or sys.flags.optimize:
        return ""
    seen: set[int] = set()
    codes = (code for _, value in sorted(vars(module).items()) for code in _codes(value, module.__name__, seen))
    return _digest(_code_words(code).encode() for code in codes)


def _codes(value: object, owner: str, seen: set[int]) -> Iterator[CodeType]:
    """The code of a function, or of all that a class has, if it is the module's own and was not `seen` before."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        for one in (value.fget, value.fset, value.fdel):
            yield from _codes(one, owner, seen)
    if not isinstance(value, FunctionType | type) or value.__module__ != owner or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, type):
        for _, one in sorted(vars(value).items()):
            yield from _codes(one, owner, seen)
    elif isinstance(inner := inspect.unwrap(value), FunctionType):
        yield inner.__code__


def _code_words(code: CodeType) -> str:
    """Instructions, names and constants: no lines and no paths."""
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {_constant(code.co_consts)}"


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _code_words(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    if isinstance(value, frozenset):  # its order changes from process to process
        return f"{{{', '.join(sorted(map(_constant, value)))}}}"
    return repr(value)


def _digest(parts: Iterable[bytes | memoryview]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return f"#{found.hexdigest()[:16]}"


def _short(value: str) -> str:
    """A value that is too long for a sentence is told apart only."""
    return value if len(value) <= _LONGEST else _digest([value.encode()])
