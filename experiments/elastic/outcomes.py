"""A training that went on, as a row and tables."""

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import torch

from experiments.elastic.layouts import LayoutStep, cores, layout_steps, layouts_table
from experiments.elastic.settings import ComposedElastic
from experiments.machine import machine
from experiments.rows import commit
from experiments.tables import NOTHING, Table
from runtime.elastic import PARTS, Alone, Outcome, Recovery
from solvers.ir import Row

NOTE = (
    "Times in ms by the clock of this machine. Detect: until the failure is known; decide: the plan; regroup: those "
    "left stop, new process groups stand; transfer: layers with their optimizer states; redo: the first step that "
    "counts. Less a step: the sum without the median step of the layout after it. –: not known, or cut short by "
    "another failure."
)
HEAD = ("step", "nodes", "lost", "joined", "layers moved", "plan", *PARTS, "less a step")


class Compared(NamedTuple):
    """The same training in one process, and how long its steps took on average."""

    alone: Alone
    step_us: float


def row_of(composed: ComposedElastic, outcome: Outcome, compared: Compared | None) -> Row:
    """The training's row; `equal_losses`, `equal_parameters` and `equal_buffers` only where it was compared.

    `step_us` and `predicted_step_us` are of the layout at the start, `layouts` has all; `recovery_us` are the medians
    over failures, `recoveries` has each one.
    """
    settings = composed.settings
    layouts = layout_steps(outcome.events, cores())
    costs = [less_a_step(one, outcome, layouts) for one in outcome.recoveries]
    found: dict[str, Any] = {
        "steps": len(outcome.losses),
        "step_us": (layouts[0].step_us if layouts else None) or outcome.median_step_us(),
        "losses": list(outcome.losses),
        "nodes": list(outcome.nodes),
        "replicas_equal": outcome.replicas_equal,
        "recovery_us": medians([one for one in outcome.recoveries if one.lost]),
        "recoveries": [{**_told(one), "lost_us": cost} for one, cost in zip(outcome.recoveries, costs, strict=True)],
        "checkpoints": sum(event["event"] == "checkpoint" for event in outcome.events),
        "resumed": outcome.resumed,
        "warnings": list(outcome.warnings),
        "layouts": [one._asdict() for one in layouts],
        "cores": cores(),
    }
    if layouts:
        found |= {"predicted_step_us": layouts[0].predicted_step_us}
    if compared is not None:
        found |= _compared(outcome, compared)
    asked = ("job", "nodes", "pipeline", "steps", "solver", "kills", "canonical", "timeout_s", "hang_s")
    return Row(
        experiment=settings.name,
        asked={**{name: getattr(settings, name) for name in asked}, "policy": settings.policy.value},
        outcome="ok",
        figures=found,
        provenance=(
            f"executed on {settings.nodes} one-thread processes of a CPU ({machine()['processor']}, {cores()} cores) "
            f"by gloo, torch {torch.__version__}"
        ),
        commit=commit(),
        seed=0,
    )


def _compared(outcome: Outcome, compared: Compared) -> dict[str, Any]:
    """Digests are of weights, buffers and optimizer states together, so one answer stands for all."""
    alone, states = compared.alone, compared.alone.digests == outcome.digests
    return {
        "equal_losses": alone.losses == outcome.losses,
        "equal_parameters": states,
        "equal_buffers": states,
        "loss_difference": max(
            abs(one - other) / abs(other) for one, other in zip(outcome.losses, alone.losses, strict=True)
        ),
        "alone_step_us": round(compared.step_us),
    }


def _told(one: Recovery) -> dict[str, Any]:
    names = ("step", "nodes", "lost", "joined", "moved", "moved_bytes", "layout", "why", "restored")
    told = {name: list(value) if isinstance(value := getattr(one, name), tuple) else value for name in names}
    return {**told, "recovery_us": one.parts_us}


def medians(recoveries: Sequence[Recovery]) -> dict[str, float]:
    """By part, over the recoveries of which it is known; parts that none has are left out."""
    known = {name: [us for one in recoveries if (us := one.parts_us[name]) is not None] for name in PARTS}
    return {name: median(values) for name, values in known.items() if values}


def less_a_step(one: Recovery, outcome: Outcome, layouts: Sequence[LayoutStep]) -> int | None:
    """What a recovery cost beyond the step that had to be made anyway; generations count from 1, and so do layouts."""
    if one.total_us is None:
        return None
    own = layouts[one.generation - 1].step_us if one.generation <= len(layouts) else None
    return one.total_us - round(own or outcome.median_step_us())


def is_as_promised(row: Row) -> bool:
    """Whether replicas are equal, and all bits are those of one process where sums are canonical and were compared."""
    found = row.figures
    equal = found.get("equal_losses", True) and found.get("equal_parameters", True)
    return bool(found["replicas_equal"] and (equal or not row.asked["canonical"]))


def tables_of(row: Row) -> list[Table]:
    """A line for each recovery, one for each layout, and what the training came to."""
    found = row.figures
    body = tuple(
        (
            str(told["step"]), str(told["nodes"]), _list(told["lost"]), _list(told["joined"]), str(told["moved"]),
            told["layout"], *(_ms(told["recovery_us"][name]) for name in PARTS), _ms(told["lost_us"]),
        )
        for told in found["recoveries"]
    )  # fmt: skip
    title = f"{row.asked['job']}: recoveries of a training on {row.asked['nodes']} processes"
    tables = [Table(title, HEAD, body, f"{NOTE} {row.provenance}.")]
    if found["layouts"]:
        tables.append(layouts_table(found["layouts"], found["cores"]))
    return [*tables, Table("Training", ("what", "value"), _summary(row))]


def _summary(row: Row) -> tuple[tuple[str, str], ...]:
    found = row.figures
    costs = [told["lost_us"] for told in found["recoveries"] if told["lost_us"] is not None and told["lost"]]
    return (
        ("steps", str(found["steps"])),
        ("median step of the start (ms)", _ms(found["step_us"])),
        ("mean step in one process (ms)", _ms(found.get("alone_step_us"))),
        ("processes", " → ".join(map(str, found["nodes"]))),
        ("lost to a failure, median (ms)", _ms(median(costs)) if costs else NOTHING),
        ("lost to a failure, most (ms)", _ms(max(costs)) if costs else NOTHING),
        ("losses equal to one process", _yes(found.get("equal_losses"))),
        ("states equal to one process", _yes(found.get("equal_parameters"))),
        ("replicas equal", _yes(found["replicas_equal"])),
        *([("checkpoints", str(found["checkpoints"]))] if found["checkpoints"] else []),
        *([("resumed before step", str(found["resumed"]))] if found["resumed"] is not None else []),
        *[("warning", sentence) for sentence in found["warnings"]],
        ("last loss", f"{found['losses'][-1]:.6f}"),
    )


def _list(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes)) or NOTHING


def _ms(value_us: float | None) -> str:
    return NOTHING if value_us is None else f"{value_us / 1e3:.1f}"


def _yes(value: bool | None) -> str:
    return NOTHING if value is None else "yes" if value else "NO"


def tables_of_rows(rows: Sequence[Row]) -> list[Table]:
    """What each training came to."""
    return [table for row in rows for table in tables_of(row)]
