"""Runs as rows, tables and a picture."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from omegaconf import OmegaConf

from experiments.rows import commit
from experiments.stability.record import Run
from experiments.stability.settings import Policy, StabilitySettings
from experiments.tables import NOTHING, Table
from experiments.worlds import World
from solvers.ir import Row

MIB = 2**20
LINES = 12
"""Steps that the table of losses shows at most; losses/POLICY.csv hold all."""
NOTE = (
    "Equal: torch.equal with the unlimited run's losses, validation losses, and parameters after the last step. "
    "Skipped: steps whose gradients overflowed. Step: mean time on the device's clock, validation apart. In time: of "
    "all tensors brought back those that were there when their operator came; the other operators waited."
)
SESSIONS = (
    "In time: back before their use as planned. On demand: brought back by the operator that needed them. "
    "Passive: sent away at once because memory was short."
)


CELLS = {
    "with the guard": (Policy.features, Policy.index_guard),
    "without the guard": (Policy.features_alone, Policy.index),
}
"""Two choices, four policies: a line for the guard, a column for how tensors are found again."""
FOUND_BY = ("", "tensors found by features", "by (operator, i-th tensor)")
CHOICES = "The guard brings back what an operator touches. Each cell: how it ended, and its tensors back in time."


def row_of(run: Run, reference: Run, settings: StabilitySettings, world: World, budget_bytes: int) -> Row:
    """A run beside the unlimited one."""
    unlimited = run.policy is reference.policy
    asked: dict[str, Any] = {
        "policy": run.policy.value,
        "model": OmegaConf.to_container(OmegaConf.structured(settings.model)),
        "scaling": OmegaConf.to_container(OmegaConf.structured(settings.scaling)),
        "hardware": world.hardware.name,
        "device": settings.device.value,
        "budget_bytes": None if unlimited else budget_bytes,
        "steps": settings.steps,
        "validate_every": settings.validate_every,
        "validation_batches": settings.validation_batches,
    }
    return Row(
        experiment=settings.name,
        asked=asked,
        outcome=_outcome(run),
        figures=_figures(run, reference),
        provenance=world.name,
        commit=commit(),
        seed=int(getattr(settings.model, "seed", 0)),
        reason=run.reason,
    )


def _outcome(run: Run) -> Literal["ok", "out-of-memory", "error"]:
    return "ok" if run.reason is None else "out-of-memory" if run.out_of_memory else "error"


def _figures(run: Run, reference: Run) -> dict[str, Any]:
    step_us, whole_us = run.mean_step_us, reference.mean_step_us
    figures: dict[str, Any] = {
        "steps": len(run.entries),
        "skipped": run.skipped,
        "validations": len(run.validations),
        "peak_bytes": run.peak_bytes,
        "failed_at": run.failed_at,
        "first_difference": run.first_difference(reference),
        **run.equals(reference),
        "losses_sha256": hashlib.sha256(run.losses.numpy().tobytes()).hexdigest(),
        "parameters_sha256": run.parameters,
        "scale": run.entries[-1].scale if run.entries else None,
        "step_us": step_us,
        "ratio": step_us / whole_us if step_us is not None and whole_us else None,
        "session": run.session,
    }
    return {name: value for name, value in figures.items() if value is not None}


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """What happened under each policy, and what the sessions did."""
    tables = [Table("What happened", HAPPENED, tuple(_happened(row) for row in rows), NOTE)]
    counted = [row for row in rows if "session" in row.figures]
    if counted:
        tables.append(Table("What the sessions did", DID, tuple(_did(row) for row in counted), SESSIONS))
    return tables + _guard_and_features({str(row.asked["policy"]): row for row in counted})


def _guard_and_features(rows: Mapping[str, Row]) -> list[Table]:
    """The table of the two choices, where all four policies were run."""
    if any(policy.value not in rows for policies in CELLS.values() for policy in policies):
        return []
    body = tuple((guard, *(_cell(rows[policy.value]) for policy in policies)) for guard, policies in CELLS.items())
    return [Table("Guard and features", FOUND_BY, body, CHOICES)]


def _cell(row: Row) -> str:
    found = row.figures
    equal = all(found[name] for name in ("equal_losses", "equal_validations", "equal_parameters"))
    whole = f"all {found['steps']} steps, {'equal' if equal else 'other bits'}"
    return f"{_ended(row) if 'failed_at' in found else whole}; {_in_time(row)} in time"


def _ended(row: Row) -> str:
    failed = row.figures.get("failed_at")
    return row.outcome if failed is None else f"{row.outcome} at step {failed}"


def _in_time(row: Row) -> str:
    """Of all tensors brought back, the share that was there when its operator came."""
    session = row.figures.get("session")
    back = 0 if session is None else session["in_time"] + session["fallbacks"]
    return f"{100 * session['in_time'] / back:.2f} %" if session is not None and back else NOTHING


HAPPENED = (
    "policy", "outcome", "steps", "skipped", "validations", "equal losses", "validations", "parameters",
    "first difference", "peak (MiB)", "budget (MiB)", "step (ms)", "x unlimited", "in time",
)  # fmt: skip


def _happened(row: Row) -> tuple[str, ...]:
    found = row.figures
    compared = row.asked["budget_bytes"] is not None
    equal = [
        _yes(found[name]) if compared else NOTHING for name in ("equal_losses", "equal_validations", "equal_parameters")
    ]
    return (
        str(row.asked["policy"]),
        _ended(row),
        str(found["steps"]),
        str(found["skipped"]),
        str(found["validations"]),
        *equal,
        f"step {found['first_difference']}" if "first_difference" in found else NOTHING,
        f"{found['peak_bytes'] / MIB:.2f}",
        f"{row.asked['budget_bytes'] / MIB:.2f}" if compared else NOTHING,
        f"{found['step_us'] / 1e3:.3f}" if "step_us" in found else NOTHING,
        f"{found['ratio']:.3f}" if "ratio" in found else NOTHING,
        _in_time(row),
    )


DID = (
    "policy", "generations", "regenerations", "returns", "policies", "swaps out", "in time", "on demand", "unmatched",
    "passive", "released early", "failed",
)  # fmt: skip


def _did(row: Row) -> tuple[str, ...]:
    found = row.figures["session"]
    names = (
        "generations",
        "regenerations",
        "returns",
        "policies",
        "swapped_out",
        "in_time",
        "fallbacks",
        "unmatched",
        "passive",
        "relieved",
        "failed",
    )
    return (str(row.asked["policy"]), *(str(found[name]) for name in names))


def loss_table(runs: Sequence[Run]) -> Table:
    """The loss of some steps, first and last among them, a column for each policy."""
    count = max((len(run.entries) for run in runs), default=0)
    stride = max(1, -(-count // LINES))
    shown = sorted({*range(0, count, stride), count - 1} if count else ())
    body = tuple(
        (
            str(place + 1),
            *(f"{run.entries[place].loss:.6f}" if place < len(run.entries) else NOTHING for run in runs),
        )
        for place in shown
    )
    return Table("Loss (nats per byte)", ("step", *(run.policy.value for run in runs)), body)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
