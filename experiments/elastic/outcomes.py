"""A training that went on, as a row and tables."""

from statistics import median
from typing import Any

import torch

from experiments.elastic.settings import ComposedElastic
from experiments.rows import commit
from experiments.tables import NOTHING, Table
from runtime.elastic import PARTS, Alone, Outcome, Recovery
from solvers.ir import Row

NOTE = (
    "Times in ms by the clock of this machine. Detect: until the failure is known; decide: the plan; regroup: those "
    "left stop, new process groups stand; transfer: layers with their optimizer states; redo: the first step that "
    "counts. Less a step: the sum without the median step. –: not known, or cut short by another failure."
)
HEAD = ("step", "nodes", "lost", "joined", "layers moved", "plan", *PARTS, "less a step")


def row_of(composed: ComposedElastic, outcome: Outcome, alone: Alone | None) -> Row:
    """The training's row; `equal_losses` and `equal_states` only where it was compared."""
    settings = composed.settings
    found: dict[str, Any] = {
        "steps": len(outcome.losses),
        "step_us": outcome.median_step_us(),
        "losses": list(outcome.losses),
        "nodes": list(outcome.nodes),
        "replicas_equal": outcome.replicas_equal,
        "recovery_us": [one.parts_us for one in outcome.recoveries],
        "lost_us": [_less_a_step(one, outcome) for one in outcome.recoveries],
        "recoveries": [_told(one) for one in outcome.recoveries],
    }
    if alone is not None:
        found["equal_losses"] = alone.losses == outcome.losses
        found["equal_states"] = alone.digests == outcome.digests
        found["loss_difference"] = max(
            abs(one - other) / abs(other) for one, other in zip(outcome.losses, alone.losses, strict=True)
        )
    asked = ("job", "nodes", "pipeline", "steps", "solver", "kills", "canonical", "timeout_s", "hang_s")
    return Row(
        experiment=settings.name,
        asked={**{name: getattr(settings, name) for name in asked}, "policy": settings.policy.value},
        outcome="ok",
        figures=found,
        provenance=f"executed on {settings.nodes} one-thread processes of a CPU by gloo, torch {torch.__version__}",
        commit=commit(),
        seed=0,
    )


def _told(one: Recovery) -> dict[str, Any]:
    names = ("step", "nodes", "lost", "joined", "moved", "moved_bytes", "layout", "why", "restored")
    return {name: list(value) if isinstance(value := getattr(one, name), tuple) else value for name in names}


def _less_a_step(one: Recovery, outcome: Outcome) -> int | None:
    return None if one.total_us is None else one.total_us - outcome.median_step_us()


def is_as_promised(row: Row) -> bool:
    """Whether replicas are equal, and all bits are those of one process where sums are canonical and were compared."""
    exact = row.asked["canonical"]
    equal = row.figures.get("equal_losses", True) and row.figures.get("equal_states", True)
    return bool(row.figures["replicas_equal"] and (equal or not exact))


def tables_of(row: Row) -> list[Table]:
    """A line for each recovery, and what the training came to."""
    found = row.figures
    body = tuple(
        (
            str(told["step"]), str(told["nodes"]), _list(told["lost"]), _list(told["joined"]), str(told["moved"]),
            told["layout"], *(_ms(parts[name]) for name in PARTS), _ms(lost),
        )
        for told, parts, lost in zip(found["recoveries"], found["recovery_us"], found["lost_us"], strict=True)
    )  # fmt: skip
    title = f"{row.asked['job']}: recoveries of a training on {row.asked['nodes']} processes"
    costs = [lost for told, lost in zip(found["recoveries"], found["lost_us"], strict=True) if lost and told["lost"]]
    summary = (
        ("steps", str(found["steps"])),
        ("median step (ms)", _ms(found["step_us"])),
        ("processes", " → ".join(map(str, found["nodes"]))),
        ("lost to a failure, median (ms)", _ms(median(costs)) if costs else NOTHING),
        ("lost to a failure, most (ms)", _ms(max(costs)) if costs else NOTHING),
        ("losses equal to one process", _yes(found.get("equal_losses"))),
        ("states equal to one process", _yes(found.get("equal_states"))),
        ("replicas equal", _yes(found["replicas_equal"])),
        ("last loss", f"{found['losses'][-1]:.6f}"),
    )
    return [Table(title, HEAD, body, f"{NOTE} {row.provenance}."), Table("Training", ("what", "value"), summary)]


def _list(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes)) or NOTHING


def _ms(value_us: float | None) -> str:
    return NOTHING if value_us is None else f"{value_us / 1e3:.1f}"


def _yes(value: bool | None) -> str:
    return NOTHING if value is None else "yes" if value else "NO"
