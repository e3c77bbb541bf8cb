"""Weight transfer after a failure, with and without the paper's mapping and our senders (Figure 11, §IV-B, §V-C)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.chameleon.entries import GIGA, trained_in
from experiments.reproduction import Cells, Result, Series, scalar
from experiments.reproduction.result import Value
from solvers.ir.replan import ReplanProblem
from solvers.replan import Algorithm1
from solvers.replan.make import Trained, after_failures, symmetric_state
from solvers.replan.transfer.owners import layer_bytes
from solvers.replan.transfer.restore import Restored, Split, restore
from solvers.replan.transfer.unoptimised import first_owners, rank_order, same_place

OURS = "restored"
WAYS: Mapping[str, Callable[[ReplanProblem, Sequence[Split]], Restored]] = {
    "by number": rank_order,
    "in place": same_place,
    "kuhn-munkres": first_owners,
    OURS: restore,
}
"""From nodes by their number, over survivors that keep their place, to the paper's mapping, and with our senders."""


def weight_transfer(
    cells: Cells,
    *,
    model: str,
    hardware: str,
    layers: Sequence[int],
    depth: int,
    data: int,
    batch: int,
    least_depth: int,
    sequence: int,
    gb_per_s: float,
    paper_s: float,
) -> Result:
    """Labels `N layers, node I`: that node fails, the pipelines after are Algorithm 1's, shorter ones first.

    By number, in place and Kuhn-Munkres send from the first owner; `restored` is the room's, senders balanced.
    `paper_s` is the paper's optimized transfer: with it, the rate that our bytes would need is told.
    """
    cells.total(len(layers) * depth * data)
    found: dict[str, dict[str, Any] | None] = {}
    for count in layers:
        trained = trained_in(cells, model, hardware, gb_per_s, layers=count, sequence=sequence)
        for node in range(depth * data):
            key = {"layers": count, "node": node}
            found[f"{count} layers, node {node}"] = cells.get(
                key, _ways, trained, depth, data, batch, node, least_depth
            )
    return Result(series=(*_seconds(found), *_saved(found), _rate(found, gb_per_s, paper_s)), notes=_notes(found))


def _ways(trained: Trained, depth: int, data: int, batch: int, node: int, least_depth: int) -> dict[str, Any]:
    whole = trained.problem(depth=depth, data=data, microbatches=batch)
    problem = after_failures(
        whole,
        symmetric_state(whole, depth, data),
        (node,),
        restart_us=0,
        bytes_per_s=trained.bytes_per_s,
        expected_interval_us=2**50,
    )
    splits = Algorithm1(least_depth=least_depth).splits(problem)
    assert splits is not None, "seven nodes hold any of these models"
    splits = tuple(sorted(splits, key=lambda split: len(split[0])))  # [2, 2, 3], as the paper writes it
    sizes = layer_bytes(problem)
    found: dict[str, Any] = {"splits": [[list(layers), count] for layers, count in splits]}
    for name, way in WAYS.items():
        restored = way(problem, splits)
        found[name] = {
            "seconds": float(restored.transfer_us) / 10**6,
            "bytes": sum(sizes[one.layer] for one in restored.transfers),
        }
        if name == OURS:
            found["least"] = float(restored.least_us) / 10**6
    return found


def _seconds(found: Mapping[str, Mapping[str, Any] | None]) -> list[Series]:
    """Transfer times and bytes of every way, and the least possible time."""
    series = []
    for name in WAYS:
        times = {label: None if cell is None else cell[name]["seconds"] for label, cell in found.items()}
        sizes = {label: None if cell is None else cell[name]["bytes"] / GIGA for label, cell in found.items()}
        series.append(Series(name=f"transfer, {name}", unit="s", points=times))
        series.append(Series(name=f"moved, {name}", unit="GB", points=sizes))
    least = {label: None if cell is None else cell["least"] for label, cell in found.items()}
    return [*series, Series(name="transfer, least possible", unit="s", points=least)]


def _saved(found: Mapping[str, Mapping[str, Any] | None]) -> list[Series]:
    """What each improvement saves of the transfer."""
    series = []
    for before, after in (("by number", OURS), ("in place", OURS), ("kuhn-munkres", OURS)):
        points: dict[str, Value] = {}
        for label, cell in found.items():
            if cell is None:
                points[label] = None
            else:
                whole, less = cell[before]["seconds"], cell[after]["seconds"]
                points[label] = 100 * (1 - less / whole) if whole else "nothing moves"
        series.append(Series(name=f"transfer saved, {before} to {after}", unit="%", points=points))
    return series


def _rate(found: Mapping[str, Mapping[str, Any] | None], gb_per_s: float, paper_s: float) -> Series:
    """At what rate the busiest node's bytes would take as long as the paper's."""
    rates = {
        label: None if cell is None else gb_per_s * cell[OURS]["seconds"] / paper_s for label, cell in found.items()
    }
    return Series(name="rate that the paper's transfer implies", unit="GB/s", points=rates)


def _notes(found: Mapping[str, Mapping[str, Any] | None]) -> tuple[str, ...]:
    texts = {
        label.partition(",")[0]: ", ".join(f"{layers}" for layers, _ in cell["splits"])
        for label, cell in found.items()
        if cell is not None
    }
    return tuple(f"{label}: pipelines {text}." for label, text in texts.items())


def arithmetic(
    cells: Cells,
    *,
    recovery_s: Sequence[float],
    transfer_saved_percent: float,
    collectives_saved_percent: float,
    steps_saved_percent: Mapping[str, float],
    kept_percent: Mapping[str, float],
    nodes: Sequence[int],
) -> Result:
    """What follows from the paper's own values: parts of the recovery, and the share of collectives in a step.

    `kept_percent`: throughput after failures over that before, as printed; the last is of `nodes` before and after.
    """
    before, after = recovery_s
    transfer_s = (before - after) / (transfer_saved_percent / 100)
    shares = {label: 100 * saved / collectives_saved_percent for label, saved in steps_saved_percent.items()}
    return Result(
        series=(
            scalar("recovery saved", "%", 100 * (1 - after / before)),
            scalar("transfer before", "s", transfer_s),
            scalar("transfer after", "s", transfer_s - (before - after)),
            scalar("fixed part of the recovery", "s", before - transfer_s),
            scalar("kept of the nodes left", "%", list(kept_percent.values())[-1] * nodes[0] / nodes[1]),
            Series(
                name="gap after failures", unit="%", points={label: 100 - kept for label, kept in kept_percent.items()}
            ),
            Series(name="collectives of a step", unit="%", points=dict(shares)),
        )
    )
