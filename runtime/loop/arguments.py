"""The sentence for an argument of the wrong type, which Python would find only later and elsewhere."""

import reprlib

from solvers.ir.errors import InvalidInput


def require(name: str, value: object, kind: type | tuple[type, ...], remedy: str) -> None:
    """Raise `InvalidInput` unless the value is of that type; True and False are not numbers."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise InvalidInput(f"{name} is {reprlib.repr(value)}: give {remedy}")
