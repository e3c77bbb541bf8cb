"""Where a freer layout wins: the paper's four numbers beside any policy for any block and any persistent chunks (ours).

The same models on the same machines, over the rate of the link to the host.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from experiments.protrain.setting import (
    MICROSECONDS,
    PROTRAIN,
    labelled,
    over,
    series_of,
    solved,
    testbed,
    value_of,
    with_host_link,
)
from experiments.protrain.uneven import case_problem, layers_of
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import Value
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.ir.solution import Limits
from solvers.layout.baselines import fits
from solvers.layout.evaluate import evaluate, instance
from solvers.layout.exact.solver import ExactLayout

PERCENT = 100
MOST_S = 600
"""Seconds that no solve reaches: the limit on work ends it, so that results are the same on any machine."""
FREER = "freer layout"
UNITS = {"search": "s", FREER: "s", "bound": "s"}
UNITS |= {"swap over forward": "x", "swap interval": "blocks", "busy with swaps": "%"}
COUNTS = {"persistent": "chunks", "buffers": "chunks", "swapped": "blocks", "checkpointed": "blocks"}
COUNTED = {f"{name}, {whose}": unit for whose in ("search", "freer") for name, unit in COUNTS.items()}


def freedom(
    cells: Cells,
    *,
    ranks: int,
    sequence: int,
    links: Mapping[str, float],
    cases: Sequence[Mapping[str, Any]],
    work: float,
    gap: float,
) -> Result:
    """Steps of `search` and of `exact-layout` with its bound; labels `CASE, LINK`, links by their 10⁹ bytes/s.

    A case gives `shape`, `hardware` and `batch`, what `layers_of` reads, and may limit `host_gib` of memory.
    `exact-layout` has so much `work` for each, and ends at a relative `gap` that is proven; the freer layout is its
    plan, or `search`'s, or one for a slower link where that is sooner here. It gains at least `gain`, at most `gain at
    most`. `busy with swaps` is the most that the paper's layout can make of the link while forward passes run.
    """
    cells.total(len(cases) * len(links))
    limits = Limits(time_s=MOST_S, work=work, gap=gap, seed=cells.seed)
    found = {}
    for case, row in labelled(cases).items():
        place = testbed(cells, row["hardware"], ranks=ranks, sequence=sequence)
        layers = layers_of(cells, row, sequence)
        slower: list[Any] = []
        for link, rate in sorted(links.items(), key=lambda pair: pair[1]):
            there = place._replace(hardware=with_host_link(place.hardware, rate))
            key = {"case": case, "link": link}
            cell = cells.get(key, _compared, case_problem(there, layers, row), limits, tuple(slower))
            found[f"{case}, {link}"] = cell
            slower += [] if cell is None or cell["plan"] is None else [cell["plan"]]
    gain, most = _gains(found)
    return Result(series=(gain, most, *series_of(found, UNITS | COUNTED)), notes=_conclusion(gain, most, PERCENT * gap))


def _gains(found: Mapping[str, Mapping[str, Any] | None]) -> list[Series]:
    """How much longer the search's step is: than the best found, and than the bound."""
    named = {"gain": FREER, "gain at most": "bound"}
    return [
        Series(name=name, unit="%", points={label: _longer(cell, below) for label, cell in found.items()})
        for name, below in named.items()
    ]


def _conclusion(gain: Series, most: Series, nothing: float) -> tuple[str, ...]:
    """What the gains say together, those below `nothing` % being none; () where no case fits."""
    found, proven = gain.numbers(), most.numbers()
    if not found:
        return ()
    best = max(found, key=lambda label: found[label])
    none = sum(value < nothing for value in found.values())
    surely = sum(value < nothing for value in proven.values())
    return (
        f"Of {len(found)} cases the freer layout gains most in {best} ({found[best]:.1f} %), on average "
        f"{fmean(found.values()):.1f} %; at most, by the bound, {fmean(proven.values()):.1f} %. In {none} it gains "
        f"less than {nothing:g} %, as far as found; in {surely} of these the bound leaves no more.",
    )


def _longer(cell: Mapping[str, Any] | None, below: str) -> Value:
    ratio = over(value_of(cell, "search"), value_of(cell, below))
    return PERCENT * (ratio - 1) if isinstance(ratio, float) else ratio


def _compared(problem: LayoutProblem, limits: Limits, slower: Sequence[Any]) -> dict[str, Any]:
    """The two solvers on one problem; `slower` are plans found where the link is slower, as they are kept."""
    paper, free = solved(PROTRAIN, problem), ExactLayout().solve(problem, limits)
    if paper.plan is None or paper.objective is None or free.plan is None or free.bound is None:
        return dict.fromkeys([*UNITS, *COUNTED, "plan"])
    given, middle = instance(problem), problem.blocks[len(problem.blocks) // 2]
    ratio = middle.swap_out_us / middle.forward_us
    known = [plan for plan in msgspec.convert(slower, list[LayoutPlan]) if fits(given, plan)]
    best = min([free.plan, paper.plan, *known], key=lambda plan: evaluate(given, plan).end_us)
    return {
        "search": paper.objective / MICROSECONDS,
        FREER: evaluate(given, best).end_us / MICROSECONDS,
        "bound": free.bound / MICROSECONDS,
        "swap over forward": ratio,
        "swap interval": problem.interval,
        "busy with swaps": PERCENT * ratio / problem.interval,
        **_counts("search", paper.plan),
        **_counts("freer", best),
        "plan": best,
    }


def _counts(whose: str, plan: LayoutPlan) -> dict[str, int]:
    counts = {
        "persistent": len(plan.persistent),
        "buffers": plan.buffers,
        "swapped": plan.policies.count("swap"),
        "checkpointed": plan.policies.count("checkpoint"),
    }
    return {f"{name}, {whose}": count for name, count in counts.items()}
