"""Synchronizing asymmetric pipelines: rounds and steps by the order of all-reduces (Figure 11, §IV-B, §V-C)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments.chameleon.entries import trained_in
from experiments.reproduction import Cells, Result, Series
from solvers.ir.replan import ReplanProblem
from solvers.replan import Algorithm1
from solvers.replan.estimate.pipeline import pipeline_us
from solvers.replan.make import Trained
from solvers.replan.transfer.collectives import collective_us
from solvers.replan.transfer.restore import Split

SERIAL = "serial"
WAYS = {"largest first": "largest-first", "merged": "merged", "layer order": "layers"}
"""The paper's greedy colouring of layers, and of merged runs; first fit in layer order, which is optimal."""


def collectives(
    cells: Cells,
    *,
    model: str,
    hardware: str,
    layers: Sequence[int],
    sequence: int,
    depth: int,
    data: int,
    left: int,
    least_depth: int,
    batches: Sequence[int],
    gb_per_s: Sequence[float],
) -> Result:
    """Labels `N layers` for rounds, `N layers batch B at R GB/s` for steps, whose pipelines are Algorithm 1's.

    A round is one layer's all-reduce. Serial: one layer after the other, as without any optimization.
    """
    cells.total(len(layers) * (1 + len(batches) * len(gb_per_s)))
    cut = {"depth": depth, "data": data, "left": left, "least_depth": least_depth}
    counted: dict[str, dict[str, Any] | None] = {}
    stepped: dict[str, dict[str, Any] | None] = {}
    for count in layers:
        for rate in gb_per_s:
            trained = trained_in(cells, model, hardware, rate, layers=count, sequence=sequence)
            label = f"{count} layers"
            if label not in counted:
                counted[label] = cells.get({"layers": count}, _rounds, trained, Plan(batches[0], **cut))
            for batch in batches:
                at = f"{label} batch {batch} at {rate:g} GB/s"
                stepped[at] = cells.get({"step": at}, _step, trained, Plan(batch, **cut))
    return Result(series=(*_counts(counted), *_steps(stepped)), notes=_notes(counted))


class Plan(NamedTuple):
    """What is planned: microbatches, the grid before, the nodes left, and Algorithm 1's least depth."""

    batch: int
    depth: int
    data: int
    left: int
    least_depth: int

    def of(self, trained: Trained) -> tuple[ReplanProblem, tuple[Split, ...]]:
        """The problem with all nodes, and the pipelines of those that are left."""
        problem = trained.problem(depth=self.depth, data=self.data, microbatches=self.batch)
        splits = Algorithm1(least_depth=self.least_depth).splits_of(problem, self.left, self.data)
        assert splits is not None, "these nodes hold any of these models"
        return problem, splits


def _rounds(trained: Trained, plan: Plan) -> dict[str, Any]:
    pipelines = [layers for layers, _ in plan.of(trained)[1]]
    found: dict[str, Any] = {name: collective_us(pipelines, 1, how) for name, how in WAYS.items()}
    return found | {SERIAL: collective_us(pipelines, 1, SERIAL), "pipelines": [list(layers) for layers in pipelines]}


def _step(trained: Trained, plan: Plan) -> dict[str, Any]:
    """Pipelines' time, and collectives' under every way, in µs."""
    problem, splits = plan.of(trained)
    each_us = trained.all_reduce_us(len(splits))
    pipelines = [layers for layers, _ in splits]
    found: dict[str, Any] = {
        name: collective_us(pipelines, each_us, how) for name, how in {SERIAL: SERIAL, **WAYS}.items()
    }
    return found | {"pipelines_us": max(pipeline_us(problem, layers, count) for layers, count in splits)}


def _counts(counted: Mapping[str, Mapping[str, Any] | None]) -> list[Series]:
    series = [
        Series(
            name=f"rounds, {name}",
            unit="",
            points={label: None if cell is None else cell[name] for label, cell in counted.items()},
        )
        for name in (SERIAL, *WAYS)
    ]
    return series + [
        Series(
            name=f"synchronization saved, {name}",
            unit="%",
            points={
                label: None if cell is None else 100 * (1 - cell[name] / cell[SERIAL])
                for label, cell in counted.items()
            },
        )
        for name in WAYS
    ]


def _steps(stepped: Mapping[str, Mapping[str, Any] | None]) -> list[Series]:
    share = {
        label: None if cell is None else 100 * cell[SERIAL] / (cell["pipelines_us"] + cell[SERIAL])
        for label, cell in stepped.items()
    }
    series = [Series(name="collectives of a serial step", unit="%", points=share)]
    for name in WAYS:
        saved: dict[str, float | str | None] = {}
        for label, cell in stepped.items():
            if cell is None:
                saved[label] = None
                continue
            before, after = (cell["pipelines_us"] + cell[way] for way in (SERIAL, name))
            saved[label] = 100 * (1 - after / before)
        series.append(Series(name=f"step saved, {name}", unit="%", points=saved))
    return series


def _notes(counted: Mapping[str, Mapping[str, Any] | None]) -> tuple[str, ...]:
    return tuple(
        f"{label}: pipelines {', '.join(map(str, cell['pipelines']))}."
        for label, cell in counted.items()
        if cell is not None
    )
