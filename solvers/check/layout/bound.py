"""Adds up the certificates of `layout` plans: what no valid decision of the problem ends before.

Four forms: `floor/1` (the closed form that is the base, too), `every-decision/1` (all of them are judged again),
`least-memory/1` (nothing fits the device), and `layout-tree/1` (leaves that price rows of `LayoutRelaxation`).
Meaning and proof: READMEs of this room and of solvers/layout.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations, product
from typing import Any

from msgspec.structs import replace

from solvers.check.certificate import (
    LARGEST,
    Fault,
    Leaf,
    entries,
    fields,
    integer,
    least_value,
    read_duals,
    read_limits,
    require_cover,
)
from solvers.check.layout.floor import base_us, peak_of
from solvers.check.layout.judge import device_peak, host_bytes, judge_layout
from solvers.check.layout.least import least_buffers, least_device_bytes
from solvers.check.layout.relaxation import LayoutRelaxation
from solvers.ir.fields import LARGEST as MOST_US
from solvers.ir.layout import POLICIES, LayoutPlan, LayoutProblem

MOST_DECISIONS = 20_000
"""More decisions than this are not judged one by one, nor are more choices of policies looked at."""
MOST_SETS = 4_096
"""More sets of persistent chunks than this are not looked at."""
MOST_LOOKS = 20_000_000
"""More decisions than this are not weighed."""


def add_up_floor(problem: LayoutProblem, certificate: Mapping[str, Any]) -> tuple[list[str], float]:
    """`floor/1` needs nothing besides the problem."""
    fault = _not_alone(certificate)
    return (fault, -math.inf) if fault else ([], base_us(problem))


def add_up_least_memory(problem: LayoutProblem, certificate: Mapping[str, Any]) -> tuple[list[str], float]:
    """`least-memory/1`: the least device memory, computed again, is more than there is; so there is no decision."""
    fault = _not_alone(certificate)
    least = least_device_bytes(problem)[0] + _kept_bytes(problem)
    if not fault and least <= problem.device_bytes:
        fault = [f"at least {least} bytes are needed, and the device has {problem.device_bytes}: nothing is proved"]
    return (fault, -math.inf) if fault else ([], math.inf)


def _kept_bytes(problem: LayoutProblem) -> int:
    """The least that chunks take which persist because the host has no room, but for the buffers that they save.

    They are as many as must be even if the largest do. Their states are those of the smallest at least. Each of them
    saves one buffer at most, and the last buffer only together with all others.
    """
    lacking = sum(chunk.host_bytes for chunk in problem.chunks) - problem.host_bytes
    on_host = [chunk for chunk in problem.chunks if chunk.host_bytes > 0]
    count = 0
    for freed in sorted((chunk.host_bytes for chunk in on_host), reverse=True):
        if lacking <= 0:
            break
        lacking -= freed
        count += 1
    states = sum(sorted(chunk.persistent_bytes for chunk in on_host)[:count])
    needed = count if count == len(problem.chunks) else count + 1
    places = max(0, needed - least_buffers(problem, ()))
    return places * problem.chunk_bytes + max(states, _states_bytes(problem))


def _states_bytes(problem: LayoutProblem) -> int:
    """States on the device, at least, of chunks that persist because the host has no room; parts of chunks may.

    The least Σ s_c·states_c with Σ s_c·host_c ≥ what the host lacks: its dual has one price μ, and is the most of
    μ·lacking − Σ max(0, μ·host_c − states_c).
    """
    lacking = sum(chunk.host_bytes for chunk in problem.chunks) - problem.host_bytes
    costs = Counter((chunk.persistent_bytes, chunk.host_bytes) for chunk in problem.chunks if chunk.host_bytes)

    def value(price: Fraction) -> Fraction:
        a, b = price.numerator, price.denominator
        saved = sum(count * max(0, a * host - b * states) for (states, host), count in costs.items())
        return Fraction(a * lacking - saved, b)

    return max(0, math.ceil(peak_of({Fraction(0), *(Fraction(states, host) for states, host in costs)}, value)))


def add_up_decisions(problem: LayoutProblem, certificate: Mapping[str, Any]) -> tuple[list[str], float]:
    """`every-decision/1`: the least end of all valid decisions, infinite where there is none."""
    fault = _not_alone(certificate)
    policies, sets = len(POLICIES) ** sum(block.choice for block in problem.blocks), 2 ** len(problem.chunks)
    if not fault and (policies > MOST_DECISIONS or sets > MOST_SETS):
        told = f"{policies} choices of policies and {sets} of persistent chunks"
        fault = [f"there are {told}, and no more than {MOST_DECISIONS} and {MOST_SETS} are looked at"]
    if fault:
        return fault, -math.inf
    try:
        plans = _decisions(problem)
    except Fault as error:
        return [str(error)], -math.inf
    ends = (judge_layout(problem, plan).objective_us for plan in plans)
    return [], min((end for end in ends if end is not None), default=math.inf)


def _decisions(problem: LayoutProblem) -> list[LayoutPlan]:
    """Those that fit, except for buffers beyond the chunks that use them: these stay empty. `Fault` where too many."""
    numbers, plans, looks = range(len(problem.chunks)), list[LayoutPlan](), 0
    options = [POLICIES if block.choice else POLICIES[:1] for block in problem.blocks]
    nothing = LayoutPlan(persistent=tuple(numbers), buffers=0, policies=POLICIES[:1] * len(problem.blocks))
    kept, every = device_peak(problem, nothing)[0], [replace(nothing, policies=some) for some in product(*options)]
    every.sort(key=lambda plan: device_peak(problem, plan)[0])
    weights = [device_peak(problem, plan)[0] - kept for plan in every]
    swapped = [host_bytes(problem, plan) for plan in every]
    for persistent in (chosen for count in range(len(numbers) + 1) for chosen in combinations(numbers, count)):
        plan = replace(nothing, persistent=persistent)
        room, away = problem.device_bytes - device_peak(problem, plan)[0], host_bytes(problem, plan)
        if away > problem.host_bytes:
            continue
        for buffers in range(least_buffers(problem, persistent), len(numbers) - len(persistent) + 1):
            fits = bisect_right(weights, room - buffers * problem.chunk_bytes)
            plans += [
                LayoutPlan(persistent=persistent, buffers=buffers, policies=every[number].policies)
                for number in range(fits)
                if away + swapped[number] <= problem.host_bytes
            ]
            looks += fits
            if len(plans) > MOST_DECISIONS or looks > MOST_LOOKS:
                told = (
                    f"more than {MOST_DECISIONS} decisions fit" if len(plans) > MOST_DECISIONS else "too many to weigh"
                )
                raise Fault(f"{told}: no more than {MOST_DECISIONS} are judged one by one, {MOST_LOOKS} weighed")
    return plans


def _not_alone(certificate: Mapping[str, Any]) -> list[str]:
    try:
        fields(certificate, ("form",), "the certificate")
    except Fault as fault:
        return [str(fault)]
    return []


def add_up_tree(problem: LayoutProblem, certificate: Mapping[str, Any]) -> tuple[list[str], float]:
    """`layout-tree/1`: the least that a leaf proves, or the first microsecond beyond `most_us`, which all assume."""
    try:
        given = fields(certificate, ("form", "unit", "most_us", "leaves"), "the certificate")
        unit = integer(given["unit"], 1, LARGEST, "unit")
        most_us = integer(given["most_us"], 0, MOST_US, "most_us")
        relaxation = LayoutRelaxation(problem, most_us)
        listed = entries(given["leaves"], "leaves")
        if not listed:
            raise Fault("leaves is empty: nothing is proved")
        leaves = [_leaf(leaf, relaxation, f"leaves[{number}]") for number, leaf in enumerate(listed)]
        require_cover(leaves, relaxation.columns)
    except Fault as fault:
        return [str(fault)], -math.inf
    least = min(least_value(relaxation.columns, unit, leaf.limits, leaf.duals, {"finish": 0}) for leaf in leaves)
    return [], min(-(-least // unit), most_us + 1)  # rounded up: decisions end at whole microseconds


def _leaf(value: object, relaxation: LayoutRelaxation, place: str) -> Leaf:
    leaf = fields(value, ("limits", "duals"), place)
    limits = read_limits(leaf["limits"], relaxation.columns, f"{place}.limits")
    return Leaf(place, limits, read_duals(leaf["duals"], relaxation.rows, f"{place}.duals"))
