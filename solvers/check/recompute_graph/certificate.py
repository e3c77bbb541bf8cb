"""Reads `cut-relaxation/1` certificates: untrusted, so that every field has its form and every name means something."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from solvers.check.certificate import (
    LARGEST,
    Box,
    Duals,
    Fault,
    entries,
    fields,
    integer,
    integers,
    mapping,
    read_duals,
    read_limits,
    shown,
)
from solvers.check.recompute_graph.cut import CutRelaxation, Shape
from solvers.ir.recompute import RecomputeGraphProblem

Prices = tuple[tuple[int, int], ...]
"""(time, what a recomputation of that time is worth in 1/unit µs), both positive."""
_SHAPE = ("cut", "first", "last", "explicit", "groups", "zones", "peaks")


@dataclass(frozen=True)
class Leaf:
    """Column limits, the priced rows as (dual, side, row), and the prices of time in the windows of each zone."""

    place: str
    limits: Box
    duals: Duals
    windows: dict[int, Prices]


def read_certificate(
    problem: RecomputeGraphProblem, certificate: Mapping[str, Any]
) -> tuple[int, CutRelaxation, list[Leaf]]:
    """The unit, the relaxation of its shape, and the leaves; raises `Fault`."""
    given = fields(certificate, ("form", "unit", *_SHAPE, "leaves"), "the certificate")
    unit = integer(given["unit"], 1, LARGEST, "unit")
    relaxation = CutRelaxation(problem, _shape(given, len(problem.ops)))
    stage = relaxation.window_without_zone()
    if stage is not None:
        raise Fault(f"zones end before stage {stage}, a communication in which an op of the groups could be hidden")
    listed = entries(given["leaves"], "leaves")
    if not listed:
        raise Fault("leaves is empty: nothing is proved")
    return unit, relaxation, [_leaf(leaf, relaxation, f"leaves[{number}]") for number, leaf in enumerate(listed)]


def _shape(given: Mapping[str, Any], count: int) -> Shape:
    last = integer(given["last"], 0, count - 1, "last")
    cut = integer(given["cut"], 0, last, "cut")
    first = integer(given["first"], 0, cut, "first")
    explicit = integers(given["explicit"], 0, last, "explicit")
    groups = tuple(_group(group, first, f"groups[{g}]") for g, group in enumerate(entries(given["groups"], "groups")))
    _require_once([*explicit, *(i for layers in groups for layer in layers for i in layer)], "explicit and groups")
    zones = integers(given["zones"], cut + 1, count - 1, "zones")
    if zones != sorted(set(zones)):
        raise Fault("zones do not ascend: list the last stage of each zone")
    peaks = integers(given["peaks"], first, last, "peaks")
    _require_once(peaks, "peaks")
    return Shape(cut, first, last, frozenset(explicit), groups, tuple(zones), frozenset(peaks))


def _group(value: object, first: int, place: str) -> tuple[tuple[int, ...], ...]:
    layers = tuple(
        tuple(integers(layer, 0, first - 1, f"{place}[{number}]")) for number, layer in enumerate(entries(value, place))
    )
    if len({len(layer) for layer in layers}) > 1:
        raise Fault(f"{place} has layers of different lengths: the ops of its layers match one by one")
    return layers


def _leaf(value: object, relaxation: CutRelaxation, place: str) -> Leaf:
    leaf = fields(value, ("limits", "duals", "windows"), place)
    windows = mapping(leaf["windows"], f"{place}.windows")
    return Leaf(
        place,
        read_limits(leaf["limits"], relaxation.columns, f"{place}.limits"),
        read_duals(leaf["duals"], relaxation.rows, f"{place}.duals"),
        dict(_zone(key, prices, relaxation, f"{place}.windows") for key, prices in windows.items()),
    )


def _zone(key: str, value: object, relaxation: CutRelaxation, place: str) -> tuple[int, Prices]:
    zone = _member(key, range(len(relaxation.windows)), place, "zone of this shape")
    times = {time for _, time, hidden in relaxation.hidden if hidden == zone}
    place = f"{place} of zone {zone}"
    prices = []
    for name, price in mapping(value, place).items():
        time = _member(name, times, place, "time that can be hidden in its windows")
        worth = integer(price, 0, LARGEST, f"{place}, time {time}")
        if time == 0 and worth > 0:
            raise Fault(f"{place} prices ops of no time at {worth}: any number of them fits into a window")
        if worth > 0:
            prices.append((time, worth))
    return zone, tuple(sorted(prices))


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
