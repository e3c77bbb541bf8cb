"""What kernels take of device sim's memory while they run: the table that stands in for them with shapes only.

With real bytes a kernel is the CPU's, and what it allocates beside its results is seen. With shapes only nobody runs
it, so that a table says how much it would have taken. `python -m experiments.temporaries` measures it again.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from runtime.device.native import load
from solvers.ir.errors import InvalidInput

TABLE = Path(__file__).with_name("temporaries.json")
COMPACT = (",", ":")


class Term(NamedTuple):
    """`factor / divisor` of the size at `place` (arguments' bytes in order, then results'), in whole blocks of 512.

    Without a place it is the factor over the divisor itself.
    """

    place: int | None
    factor: int
    divisor: int = 1


class Rule(NamedTuple):
    """A kernel's temporaries: the bytes at the sizes in `exact`, else the sum of the terms.

    `calls` of different sizes were measured; the terms alone were never farther off than `farthest_bytes`. Where they
    are constants beside calls in `exact`, the extension takes the bytes of the nearest measured sizes in their place.
    """

    terms: tuple[Term, ...]
    calls: int
    farthest_bytes: int
    exact: tuple[tuple[tuple[int, ...], int], ...] = ()


PlainRule = tuple[list[tuple[int | None, int, int]], list[tuple[list[int], int]]]


def read_rules(path: Path = TABLE) -> dict[str, Rule]:
    """The rules by signature; raises `InvalidInput` where there is no table, or another file in its place."""
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {signature: _rule(rule) for signature, rule in raw["rules"].items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"{path} is no table of kernels' temporaries ({error}): make it with `python -m experiments.temporaries`"
        ) from error


def about_rules(path: Path = TABLE) -> dict[str, Any]:
    """How a table was made: command, torch, threads, and the CPU whose kernels it was."""
    return {key: value for key, value in json.loads(path.read_text(encoding="utf-8")).items() if key != "rules"}


def _rule(raw: dict[str, Any]) -> Rule:
    exact = tuple((tuple(sizes), took) for sizes, took in raw.get("exact", ()))
    return Rule(tuple(Term(*term) for term in raw["terms"]), raw["calls"], raw["farthest_bytes"], exact)


def plain_rules(rules: Mapping[str, Rule]) -> dict[str, PlainRule]:
    """The rules as the extension takes them."""
    return {
        signature: (
            [(term.place, term.factor, term.divisor) for term in rule.terms],
            [(list(sizes), took) for sizes, took in rule.exact],
        )
        for signature, rule in rules.items()
    }


@cache
def shipped_rules() -> dict[str, PlainRule]:
    """The shipped rules as the extension takes them."""
    return plain_rules(read_rules())


def write_rules(path: Path, rules: Mapping[str, Rule], about: Mapping[str, str | int]) -> None:
    """Writes a table, a rule a line, in the order of signatures; `about` says how it was made."""
    head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in about.items())
    told = {name: json.dumps(_raw(rule), separators=COMPACT) for name, rule in sorted(rules.items())}
    lines = ",\n".join(f"  {json.dumps(name)}: {rule}" for name, rule in told.items())
    path.write_text(f'{{\n{head} "rules": {{\n{lines}\n }}\n}}\n', encoding="utf-8")


def _raw(rule: Rule) -> dict[str, Any]:
    raw: dict[str, Any] = {"terms": rule.terms, "calls": rule.calls, "farthest_bytes": rule.farthest_bytes}
    return {**raw, "exact": rule.exact} if rule.exact else raw


def temporaries_of(signature: str, sizes: Sequence[int], product: tuple[int, int, int, bool] | None = None) -> int:
    """The bytes that a kernel takes for itself by the shipped table, as device sim takes them with shapes only.

    `signature` and `sizes` (in bytes: arguments, then results) are those of the table; a matrix product says rows,
    inner and columns besides, and whether its left operand lies column by column. Raises `InvalidInput` where no rule
    knows the call.
    """
    native = load("runtime._sim")
    native.set_temporaries(shipped_rules())
    told = native.temporaries_of(signature, list(sizes), product)
    if told is None:
        raise InvalidInput(
            f"no rule of {TABLE.name} knows the call {signature!r}: measure it, or write it as it is there"
        )
    return int(told)
