"""Parameters of solvers from their text on a command line."""

import math
import re
import types
import typing
from collections.abc import Callable
from typing import Any

from solvers.ir.errors import InvalidInput
from solvers.ir.names import unknown
from solvers.kinds import load
from solvers.planner import solver_entry, solver_parameters


def read_parameter(name: str, key: str, text: str) -> object:
    """A field of a solver from its text on a command line; raises `InvalidInput` where it has another type."""
    known = solver_parameters(name)
    if key not in known:
        raise unknown(f"parameter of {name}", key, known)
    expected = typing.get_type_hints(load(solver_entry(name).target))[key]
    return _read(expected, text, f"{key} of {name}")


def _read(expected: Any, text: str, place: str) -> object:
    options = typing.get_args(expected)
    if typing.get_origin(expected) in (typing.Union, types.UnionType):
        if type(None) in options and text.lower() == "none":
            return None
        options = tuple(option for option in options if option in _READERS)
        expected = options[0] if len(options) == 1 else expected
    if typing.get_origin(expected) is typing.Literal:
        if text not in options:
            raise unknown(f"choice for {place}", text, map(str, options))
        return text
    if expected not in _READERS:
        raise InvalidInput(f"{place} cannot be set on the command line: set it from Python")
    meaning, reader = _READERS[expected]
    try:
        return reader(text)
    except (ValueError, KeyError, OverflowError) as error:
        raise InvalidInput(f"{place} is {text!r}: give {meaning}") from error


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        raise ValueError(text)
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_READERS: dict[Any, tuple[str, Callable[[str], object]]] = {
    bool: ("true or false", lambda text: _TRUTH[text.lower()]),
    int: ("a whole number", _whole),
    float: ("a finite number", _finite),
    str: ("a text", str),
}
