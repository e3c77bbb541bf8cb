"""The paper's worked examples: what moves in Figure 3, how many all-reduces Figure 4 has, and [2, 2, 3] (§V-D)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from experiments.chameleon.entries import trained_in
from experiments.reproduction import Cells, Result, Series
from solvers.ir.replan import ReplanProblem
from solvers.ir.solution import Limits
from solvers.replan import Algorithm1, ExactReplan
from solvers.replan.estimate.memory import stage_bytes
from solvers.replan.make import Trained, after_failures, even_layers, symmetric_state
from solvers.replan.transfer.collectives import communications, rounds
from solvers.replan.transfer.owners import intervals
from solvers.replan.transfer.restore import restore

GIB = 2**30
Layers = Sequence[int]


def toy_problem(layers: int, depth: int, data: int, microbatches: int) -> ReplanProblem:
    """A model of alike layers whose times and bytes are units: for examples that only count layers."""
    return ReplanProblem(
        name=f"{layers} layers, {data} pipelines of {depth}",
        nodes=depth * data,
        microbatches=microbatches,
        layers=layers,
        forward_us=1,
        backward_us=2,
        first_extra_us=(0, 0),
        last_extra_us=(0, 0),
        p2p_us=0,
        sync_us=0,
        memory_bytes=2**40,
        layer_static_bytes=1,
        layer_activation_bytes=0,
        first_static_bytes=0,
        last_static_bytes=0,
        max_depth=min(layers, depth * data),
        data_parallel=data,
    )


def figure_3(cells: Cells, *, layers: int, data: int, depth: int, new: Sequence[Layers], microbatches: int) -> Result:
    """Layers that move from `data` x `depth` to the `new` pipelines, by Kuhn-Munkres; labels say which node failed.

    The text's two costs are what the first node of all lacks as first and as second node of a new pipeline.
    """
    nodes = range(data * depth)
    cells.total(len(nodes))
    found = {
        f"node {node} fails": cells.get({"failed": node}, _moved, layers, data, depth, new, node, microbatches)
        for node in nodes
    }
    names = {"layers moved": "moved", "busiest node": "busiest", "least over all mappings of the busiest": "least"}
    series = [
        Series(
            name=name,
            unit="layers",
            points={label: None if cell is None else cell[key] for label, cell in found.items()},
        )
        for name, key in names.items()
    ]
    held = set(range(even_layers(layers, depth)[0]))
    places = dict(zip(("as first node", "as second node"), intervals(new[0]), strict=False))
    lacking = {name: len(set(range(*run)) - held) for name, run in places.items()}
    return Result(series=(*series, Series(name="first node lacks", unit="layers", points=dict(lacking))))


def _moved(layers: int, data: int, depth: int, new: Sequence[Layers], failed: int, microbatches: int) -> dict[str, Any]:
    whole = toy_problem(layers, depth, data, microbatches)
    problem = after_failures(
        whole, symmetric_state(whole, depth, data), (failed,), restart_us=0, bytes_per_s=1, expected_interval_us=2**40
    )
    shares = [microbatches // len(new) + (number < microbatches % len(new)) for number in range(len(new))]
    restored = restore(problem, [(tuple(one), share) for one, share in zip(new, shares, strict=True)])
    return {
        "moved": len(restored.transfers),
        "busiest": float(restored.transfer_us) / 10**6,
        "least": float(restored.least_us) / 10**6,
        "transfers": [[one.layer, one.source, one.target] for one in restored.transfers],
    }


def figure_4(cells: Cells, *, before: Sequence[Layers], after: Sequence[Layers]) -> Result:
    """All-reduces of a step, layers on the same nodes taken as one, and the rounds that layers need one by one."""
    cells.total(2)
    both = {"before": before, "after": after}
    found = {name: cells.get({"pipelines": pipelines}, _counted, pipelines) for name, pipelines in both.items()}
    kinds = {"all-reduces": "communications", "rounds of layers": "rounds", "layers one after the other": "layers"}
    return Result(
        series=tuple(
            Series(
                name=name, unit="", points={label: None if cell is None else cell[key] for label, cell in found.items()}
            )
            for name, key in kinds.items()
        )
    )


def _counted(pipelines: Sequence[Layers]) -> dict[str, int]:
    return {
        "communications": len(communications(pipelines)),
        "rounds": len(rounds(pipelines, order="layers")),
        "layers": sum(pipelines[0]),
    }


def memory(
    cells: Cells,
    *,
    model: str,
    hardware: str,
    layers: Sequence[int],
    sequence: int,
    depth: int,
    data: int,
    batch: int,
    left: int,
    least_depth: int,
    gb_per_s: float,
) -> Result:
    """The fullest device before and after a failure, in GiB, by how many layers the model has; the depths after.

    Depths begin at `least_depth`; beside them, how many pipelines Algorithm 1 makes where they begin at 1.
    """
    cells.total(len(layers))
    found = {}
    for count in layers:
        trained = trained_in(cells, model, hardware, gb_per_s, layers=count, sequence=sequence)
        label = f"{count} layers"
        found[label] = cells.get({"layers": count}, _filled, trained, depth, data, batch, left, least_depth)
    names = {"before": "GiB", "after": "GiB", "after, exact": "GiB", "memory of a device": "GiB"}
    series = [
        Series(name=name, unit=unit, points={label: _of(cell, name) for label, cell in found.items()})
        for name, unit in names.items()
    ]
    depths = {
        f"{label}, pipeline {number + 1}": depth
        for label, cell in found.items()
        if cell is not None
        for number, depth in enumerate(cell["depths"])
    }
    series.append(Series(name="depths, algorithm 1", unit="stages", points=depths))
    pipelines: dict[str, float | str | None] = {
        label: None if cell is None else len(cell["from 1"]) for label, cell in found.items()
    }
    series.append(Series(name="pipelines, algorithm 1 with depths from 1", unit="pipelines", points=pipelines))
    return Result(series=tuple(series), notes=tuple(_memory_note(*one) for one in found.items() if one[1] is not None))


def _filled(trained: Trained, depth: int, data: int, batch: int, left: int, least_depth: int) -> dict[str, Any]:
    problem = trained.problem(depth=depth, data=data, microbatches=batch)
    later = msgspec.structs.replace(problem, nodes=left, max_depth=min(problem.max_depth, left))
    before = max(stage_bytes(problem, even_layers(problem.layers, depth), batch // data))
    paper, exact = (planner.solve(later, Limits()) for planner in (Algorithm1(least_depth=least_depth), ExactReplan()))
    free = Algorithm1(least_depth=1).solve(later, Limits()).plan
    splits = [] if paper.plan is None else [(one.layers, one.microbatches) for one in paper.plan.pipelines]
    best = [] if exact.plan is None else [(one.layers, one.microbatches) for one in exact.plan.pipelines]
    return {
        "before": before / GIB,
        "after": max((max(stage_bytes(later, *one)) for one in splits), default=0) / GIB if splits else None,
        "after, exact": max((max(stage_bytes(later, *one)) for one in best), default=0) / GIB if best else None,
        "memory of a device": problem.memory_bytes / GIB,
        "depths": sorted(len(layers) for layers, _ in splits),
        "from 1": [] if free is None else sorted((len(one.layers) for one in free.pipelines), reverse=True),
        "splits": [[list(one), count] for one, count in splits],
        "exact": [[list(one), count] for one, count in best],
    }


def _of(cell: Mapping[str, Any] | None, name: str) -> float | str | None:
    if cell is None:
        return None
    value: float | None = cell[name]
    return "no plan" if value is None else value


def _memory_note(label: str, cell: Mapping[str, Any] | None) -> str:
    assert cell is not None
    texts = [", ".join(f"{layers} with {count}" for layers, count in cell[name]) for name in ("splits", "exact")]
    return (
        f"{label}: layers and microbatches by algorithm 1 {texts[0]}; exact {texts[1]}. With depths from 1 algorithm 1 "
        f"makes pipelines of {cell['from 1']}."
    )
