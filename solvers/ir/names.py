"""The sentence for a name that does not exist, with the nearest one that does."""

from collections.abc import Iterable
from difflib import get_close_matches

from solvers.ir.errors import InvalidInput


def unknown(what: str, given: str, known: Iterable[str]) -> InvalidInput:
    """The error for `given`, which is no `what`: it names the nearest known name, or all of them where none is near."""
    names = sorted(known)
    lowered = {name.lower(): name for name in reversed(names)}
    near = get_close_matches(given.lower(), list(lowered), n=1, cutoff=0.5)
    remedy = f"did you mean {lowered[near[0]]!r}?" if near else f"choose of {', '.join(names) or 'none'}"
    return InvalidInput(f"there is no {what} {given!r}: {remedy}")
