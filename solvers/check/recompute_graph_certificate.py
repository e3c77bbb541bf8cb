"""Reads `cut-relaxation/1` certificates: untrusted, so that every field has its form and every name means something."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from solvers.check.recompute_graph_cut import CutRelaxation, Row, Shape
from solvers.ir.recompute import RecomputeGraphProblem

Box = dict[str, tuple[int, int]]
"""Column → its lower and upper limit; a column left out has those of the relaxation."""
Prices = tuple[tuple[int, int], ...]
"""(time, what a recomputation of that time is worth in 1/unit µs), both positive."""
LARGEST = 2**100
"""The largest number that a certificate may hold."""
_SHAPE = ("cut", "first", "last", "explicit", "groups", "zones", "peaks")


class Fault(Exception):
    """What is wrong with a certificate, in one sentence."""


@dataclass(frozen=True)
class Leaf:
    """Column limits, the priced rows as (dual, side, row), and the prices of time in the windows of each zone."""

    place: str
    limits: Box
    duals: tuple[tuple[int, int, Row], ...]
    windows: dict[int, Prices]


def read_certificate(
    problem: RecomputeGraphProblem, certificate: Mapping[str, Any]
) -> tuple[int, CutRelaxation, list[Leaf]]:
    """The unit, the relaxation of its shape, and the leaves; raises `Fault`."""
    fields = _fields(certificate, ("form", "unit", *_SHAPE, "leaves"), "the certificate")
    unit = _integer(fields["unit"], 1, LARGEST, "unit")
    relaxation = CutRelaxation(problem, _shape(fields, len(problem.ops)))
    stage = relaxation.window_without_zone()
    if stage is not None:
        raise Fault(f"zones end before stage {stage}, a communication in which an op of the groups could be hidden")
    listed = _list(fields["leaves"], "leaves")
    if not listed:
        raise Fault("leaves is empty: nothing is proved")
    return unit, relaxation, [_leaf(leaf, relaxation, f"leaves[{number}]") for number, leaf in enumerate(listed)]


def _shape(fields: Mapping[str, Any], count: int) -> Shape:
    last = _integer(fields["last"], 0, count - 1, "last")
    cut = _integer(fields["cut"], 0, last, "cut")
    first = _integer(fields["first"], 0, cut, "first")
    explicit = _integers(fields["explicit"], 0, last, "explicit")
    groups = tuple(_group(group, first, f"groups[{g}]") for g, group in enumerate(_list(fields["groups"], "groups")))
    _require_once([*explicit, *(i for layers in groups for layer in layers for i in layer)], "explicit and groups")
    zones = _integers(fields["zones"], cut + 1, count - 1, "zones")
    if zones != sorted(set(zones)):
        raise Fault("zones do not ascend: list the last stage of each zone")
    peaks = _integers(fields["peaks"], first, last, "peaks")
    _require_once(peaks, "peaks")
    return Shape(cut, first, last, frozenset(explicit), groups, tuple(zones), frozenset(peaks))


def _group(value: object, first: int, place: str) -> tuple[tuple[int, ...], ...]:
    layers = tuple(
        tuple(_integers(layer, 0, first - 1, f"{place}[{number}]")) for number, layer in enumerate(_list(value, place))
    )
    if len({len(layer) for layer in layers}) > 1:
        raise Fault(f"{place} has layers of different lengths: the ops of its layers match one by one")
    return layers


def _leaf(value: object, relaxation: CutRelaxation, place: str) -> Leaf:
    fields = _fields(value, ("limits", "duals", "windows"), place)
    limits = _object(fields["limits"], f"{place}.limits")
    duals = _object(fields["duals"], f"{place}.duals")
    windows = _object(fields["windows"], f"{place}.windows")
    return Leaf(
        place,
        {key: _interval(key, pair, relaxation, f"{place}.limits") for key, pair in limits.items()},
        tuple(_priced(key, dual, relaxation, f"{place}.duals") for key, dual in duals.items()),
        dict(_zone(key, prices, relaxation, f"{place}.windows") for key, prices in windows.items()),
    )


def _interval(key: str, value: object, relaxation: CutRelaxation, place: str) -> tuple[int, int]:
    column = relaxation.columns.get(key)
    if column is None:
        raise Fault(f"{place} has {shown(key)}, which is no column of this shape")
    pair = _integers(value, 0, column.upper, f"{place} of {key}")
    if len(pair) != 2 or pair[0] > pair[1]:
        raise Fault(f"{place} of {key} is {shown(value)}: give [low, high], low ≤ high")
    return pair[0], pair[1]


def _priced(key: str, value: object, relaxation: CutRelaxation, place: str) -> tuple[int, int, Row]:
    row = relaxation.rows.get(key)
    if row is None:
        raise Fault(f"{place} has {shown(key)}, which is no row of this shape")
    dual = _integer(value, -LARGEST, LARGEST, f"{place} of {key}")
    side = 0 if dual == 0 else row.lower if dual > 0 else row.upper
    if side is None:
        raise Fault(f"{place} of {key} is {dual}, but that row has no {'lower' if dual > 0 else 'upper'} limit")
    return dual, side, row


def _zone(key: str, value: object, relaxation: CutRelaxation, place: str) -> tuple[int, Prices]:
    zone = _member(key, range(len(relaxation.windows)), place, "zone of this shape")
    times = {time for _, time, hidden in relaxation.hidden if hidden == zone}
    place = f"{place} of zone {zone}"
    prices = []
    for name, price in _object(value, place).items():
        time = _member(name, times, place, "time that can be hidden in its windows")
        worth = _integer(price, 0, LARGEST, f"{place}, time {time}")
        if time == 0 and worth > 0:
            raise Fault(f"{place} prices ops of no time at {worth}: any number of them fits into a window")
        if worth > 0:
            prices.append((time, worth))
    return zone, tuple(sorted(prices))


# Forms


def _fields(value: object, names: tuple[str, ...], place: str) -> Mapping[str, Any]:
    found = _object(value, place)
    for name in names:
        if name not in found:
            raise Fault(f"{place} lacks {name}")
    for name in found:
        if name not in names:
            raise Fault(f"{place} has {shown(name)}, which is none of {', '.join(names)}")
    return found


def _object(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Fault(f"{place} is {shown(value)}, not an object")
    for key in value:
        if not isinstance(key, str):
            raise Fault(f"{place} has the key {shown(key)}, not a text")
    return value


def _list(value: object, place: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise Fault(f"{place} is {shown(value)}, not a list")
    return list(value)


def _integers(value: object, least: int, most: int, place: str) -> list[int]:
    return [_integer(entry, least, most, f"{place}[{number}]") for number, entry in enumerate(_list(value, place))]


def _integer(value: object, least: int, most: int, place: str) -> int:
    if type(value) is not int:  # bool is an int too
        raise Fault(f"{place} is {shown(value)}, not a whole number")
    if not least <= value <= most:
        raise Fault(f"{place} is {shown(value)}, outside {least}…{most}" if least <= most else f"{place} must be empty")
    return value


def _member(key: str, known: Collection[int], place: str, what: str) -> int:
    """The number that a key stands for, in its only spelling."""
    number = int(key) if re.fullmatch(r"0|[1-9][0-9]{0,17}", key) else None
    if number is None or number not in known:
        raise Fault(f"{place} has {shown(key)}, which is no {what}")
    return number


def _require_once(ops: list[int], place: str) -> None:
    seen: set[int] = set()
    for i in ops:
        if i in seen:
            raise Fault(f"{place} list {i} twice")
        seen.add(i)


def shown(value: object) -> str:
    """A value for a sentence, whatever its size."""
    if isinstance(value, str | int | float | bool | None) and (not isinstance(value, int) or value.bit_length() <= 128):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}…"
    return "a number beyond 128 bits" if isinstance(value, int) else f"of type {type(value).__name__}"
