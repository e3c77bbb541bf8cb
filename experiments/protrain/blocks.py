"""Swapping a block beside computing it again, on two machines, and what the search then chooses (§5.3.1).

Where the two cross is shown over the rate of the link to the host.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.protrain.setting import (
    GIB,
    GIGA,
    MICROSECONDS,
    PROTRAIN,
    Testbed,
    labelled,
    series_of,
    solved,
    testbed,
    with_host_link,
)
from experiments.reproduction import Cells, Result, Series
from solvers.ir.layout import LayoutProblem
from solvers.workload import ModelShape

UNITS = {"swapping a block": "s", "computing it again": "s", "blocks": "blocks", "swapped": "blocks"}
UNITS |= {"checkpointed": "blocks", "kept": "blocks"}
ROOMY = "with a roomy host"
OVER_LINKS = {"swapping a block": "s", "computing it again": "s", "swap interval": "blocks"}
OVER_LINKS |= {f"{name}{where}": "blocks" for where in ("", f", {ROOMY}") for name in ("swapped", "checkpointed")}
OVER_LINKS |= {"step": "s", f"step, {ROOMY}": "s"}


def swap_or_recompute(
    cells: Cells, *, shape: str, ranks: int, sequence: int, machines: Sequence[Mapping[str, Any]], samples: int
) -> Result:
    """Times of a middle block with `samples` a rank, by machine, and the policies that `search` gives all blocks.

    A machine's own `batch`, of all ranks, is for the search.
    """
    model = cells.shape(shape)
    cells.total(len(machines))
    found = {}
    for label, row in labelled(machines).items():
        place = testbed(cells, row["hardware"], ranks=ranks, sequence=sequence)
        found[label] = cells.get({"machine": label}, _block, place, model, samples, row["batch"])
    return Result(series=tuple(series_of(found, UNITS)))


def _block(place: Testbed, shape: ModelShape, samples: int, batch: int) -> dict[str, Any]:
    blocks = place.problem(shape, samples * place.ranks).blocks
    block = blocks[len(blocks) // 2]
    plan = solved(PROTRAIN, place.problem(shape, batch)).plan
    policies = () if plan is None else plan.policies
    counts = {"swapped": policies.count("swap"), "checkpointed": policies.count("checkpoint")}
    return {
        "swapping a block": block.swap_out_us / MICROSECONDS,
        "computing it again": block.forward_us / MICROSECONDS,
        "blocks": len(policies) or None,
        "kept": policies.count("keep") if policies else None,
        **({name: value if policies else None for name, value in counts.items()}),
    }


def crossing(
    cells: Cells,
    *,
    shape: str,
    ranks: int,
    sequence: int,
    batch: int,
    machines: Mapping[str, str],
    links: Sequence[float],
    roomy_gib: int,
) -> Result:
    """A middle block's two times and what `search` gives all blocks, over the link's 10⁹ bytes/s a direction.

    Labels are `MACHINE, RATE GB/s`. Everything else of a machine stays, but for `with a roomy host`, whose memory is
    `roomy_gib`. `swapping is faster from` is the rate at which moving a block takes as long as its forward pass.
    """
    model = cells.shape(shape)
    cells.total(len(machines) * len(links))
    found, equal = {}, {}
    for label, hardware in machines.items():
        place = testbed(cells, hardware, ranks=ranks, sequence=sequence)
        for rate in links:
            there = place._replace(hardware=with_host_link(place.hardware, rate))
            key = {"machine": label, "GB/s": rate}
            cell = cells.get(key, _over_link, there, model, batch, roomy_gib * GIB)
            found[f"{label}, {rate} GB/s"] = cell
            equal[label] = None if cell is None else cell["equal"]
    rates = Series(name="swapping is faster from", unit="GB/s", points=equal)
    return Result(series=(*series_of(found, OVER_LINKS), rates))


def _over_link(place: Testbed, shape: ModelShape, batch: int, roomy_bytes: int) -> dict[str, Any]:
    problem, roomy = place.problem(shape, batch), place.problem(shape, batch, host_bytes=roomy_bytes)
    block = problem.blocks[len(problem.blocks) // 2]
    return {
        "swapping a block": block.swap_out_us / MICROSECONDS,
        "computing it again": block.forward_us / MICROSECONDS,
        "swap interval": problem.interval,
        "equal": block.activation_bytes / block.forward_us * MICROSECONDS / GIGA,
        **_chosen(problem, ""),
        **_chosen(roomy, f", {ROOMY}"),
    }


def _chosen(problem: LayoutProblem, where: str) -> dict[str, Any]:
    """The search's step, and how many blocks it swaps and checkpoints."""
    found = solved(PROTRAIN, problem)
    if found.plan is None or found.objective is None:
        return dict.fromkeys(f"{name}{where}" for name in ("swapped", "checkpointed", "step"))
    return {
        f"swapped{where}": found.plan.policies.count("swap"),
        f"checkpointed{where}": found.plan.policies.count("checkpoint"),
        f"step{where}": found.objective / MICROSECONDS,
    }
