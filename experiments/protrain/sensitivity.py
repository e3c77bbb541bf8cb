"""What slower links change: an estimate of cards whose link to the host and to each other share a switch (ours).

In the model host link and network are lanes of their own. Where both share one bus, each has its rate while the other
is idle and half of it while both are busy: never less than both at half all the time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.protrain.ablation import ABLATIONS, ablated
from experiments.protrain.setting import (
    BASELINES,
    MICROSECONDS,
    PROTRAIN,
    Testbed,
    labelled,
    over,
    series_of,
    solved,
    testbed,
    value_of,
    with_rates,
)
from experiments.protrain.throughput import SYSTEMS, best_of
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import Value
from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.layout.baselines import fits
from solvers.layout.calibration import Configuration
from solvers.layout.evaluate import evaluate, instance
from solvers.workload import ModelShape

CHOSEN = {"persistent": "chunks", "buffers": "chunks", "swapped": "blocks", "checkpointed": "blocks"}
STEPS = {"step": "s", "paper's configuration": "s", "as chosen without sharing": "s"}
"""Of the search's choice; of Table 4's; and of what the search chooses with the rates as assumed."""


def slower_links(
    cells: Cells,
    *,
    hardware: str,
    ranks: int,
    sequence: int,
    batches: Sequence[int],
    rates: Mapping[str, Mapping[str, float]],
    models: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    study: Mapping[str, Any],
) -> Result:
    """ProTrain over each baseline at their best batches, labels `MODEL, RATES`; rows of Table 4, labels `ROW, RATES`.

    `rates` names shares of the machine's rates that the links to the `host` and the `network` have. `study` is the
    `shape` of Figures 4a and 5 with the `batches` of each: ProTrain's speed over that of one device, which shares
    its link with nothing (labels `RATES`), and the ablations (labels `batch N, RATES`).
    """
    place = testbed(cells, hardware, ranks=ranks, sequence=sequence)
    places = {name: _slowed(place, shares) for name, shares in rates.items()}
    ablations = len(study["ablated"])
    cells.total(len(rates) * (len(models) * len(SYSTEMS) + len(rows) + 1 + ablations) + 1)
    speeds: dict[str, dict[str, Any]] = {system: {} for system in SYSTEMS}
    for label, model in labelled(models).items():
        for name, there in places.items():
            for system in SYSTEMS:
                key = {"model": label, "rates": name, "system": system}
                shape = cells.shape(model["shape"])
                speeds[system][f"{label}, {name}"] = cells.get(key, best_of, there, shape, system, batches)
    chosen = {}
    for label, row in labelled(rows).items():
        shape, given = cells.shape(row["shape"]), Configuration(row=label, hardware=hardware, **row)
        for name, there in places.items():
            key = {"row": label, "rates": name}
            chosen[f"{label}, {name}"] = cells.get(key, _chosen, place, there, shape, given)
    found = {one.name: one for one in series_of(chosen, CHOSEN | STEPS)}
    papers, ours = (found[name].points for name in ("paper's configuration", "step"))
    longer = {label: over(value, ours[label]) for label, value in papers.items()}
    ratio = Series(name="paper's configuration over search", unit="x", points=longer)
    studied = (_scaled(cells, place, places, study), *_ablations(cells, places, study))
    return Result(series=(*_ratios(speeds), *found.values(), ratio, *studied))


def _slowed(place: Testbed, shares: Mapping[str, float]) -> Testbed:
    slower = with_rates(
        place.hardware,
        host=lambda rate: round(rate * shares["host"]),
        network=lambda rate: round(rate * shares["network"]),
    )
    return place._replace(hardware=slower)


def _scaled(cells: Cells, place: Testbed, places: Mapping[str, Testbed], study: Mapping[str, Any]) -> Series:
    """All devices over one: its link to the host has the machine's rate, and there is no network."""
    shape, batches = cells.shape(study["shape"]), study["scaled"]

    def speed(there: Testbed, rates: str) -> Value:
        key = {"scaled": rates, "ranks": there.ranks}
        sizes = [batch for batch in batches if batch % there.ranks == 0]
        return value_of(cells.get(key, best_of, there, shape, PROTRAIN, sizes), "tokens/s")

    alone = speed(place._replace(ranks=1), "alone")
    points = {name: over(speed(there, name), alone) for name, there in places.items()}
    return Series(name="protrain over one device", unit="x", points=points)


def _ablations(cells: Cells, places: Mapping[str, Testbed], study: Mapping[str, Any]) -> list[Series]:
    shape, found = cells.shape(study["shape"]), {}
    for name, there in places.items():
        for batch in study["ablated"]:
            found[f"batch {batch}, {name}"] = cells.get({"batch": batch, "rates": name}, ablated, there, shape, batch)
    return series_of(found, dict.fromkeys(ABLATIONS, "x"))


def _ratios(speeds: Mapping[str, Mapping[str, Any]]) -> list[Series]:
    points = {
        system: {label: value_of(cell, "tokens/s") for label, cell in found.items()} for system, found in speeds.items()
    }
    ours = points[PROTRAIN]
    ratios = {
        f"protrain over {system}": {label: over(ours[label], value) for label, value in points[system].items()}
        for system in BASELINES
    }
    return [
        *(Series(name=system, unit="tokens/s", points=found) for system, found in points.items()),
        *(Series(name=name, unit="x", points=found) for name, found in ratios.items()),
    ]


def _chosen(place: Testbed, slower: Testbed, shape: ModelShape, row: Configuration) -> dict[str, Any]:
    """What the search chooses with slower links, and how long other choices take with them."""
    problem = slower.problem(shape, row.batch)
    found, before = solved(PROTRAIN, problem), solved(PROTRAIN, place.problem(shape, row.batch))
    return {
        **_counts(found.plan),
        "step": None if found.objective is None else found.objective / MICROSECONDS,
        "paper's configuration": _step_s(problem, row.plan(problem)),
        "as chosen without sharing": _step_s(problem, before.plan),
    }


def _counts(plan: LayoutPlan | None) -> dict[str, int | None]:
    if plan is None:
        return dict.fromkeys(CHOSEN)
    return {
        "persistent": len(plan.persistent),
        "buffers": plan.buffers,
        "swapped": plan.policies.count("swap"),
        "checkpointed": plan.policies.count("checkpoint"),
    }


def _step_s(problem: LayoutProblem, plan: LayoutPlan | None) -> float | None:
    """The plan's step in seconds; None where it does not fit (a slower link lets swapped blocks leave later)."""
    given = instance(problem)
    return evaluate(given, plan).end_us / MICROSECONDS if plan is not None and fits(given, plan) else None
