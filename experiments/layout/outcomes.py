"""Trainings under layouts as rows and a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from experiments.layout.figures import equalities, hidden_us, moved_bytes
from experiments.layout.settings import ComposedLayout
from experiments.layout.training import Trained
from experiments.rows import commit
from experiments.tables import NOTHING, Table
from runtime.layout.deciding import Decided
from solvers.ir import Row

MIB = 2**20
PLAIN, FSDP2, FSDP2_PLAN = "plain", "fsdp2", "fsdp2-plan"
"""Rows that no solver of layouts decides."""
UNUSED = {"tied", "clip"}
"""What the shape of a GPT has and this experiment does not."""
EQUAL = ("equal_losses", "equal_parameters", "equal_gradients", "equal_buffers")
HEAD = (
    "policy", "layout", "equal", "step (ms)", "with noise", "forward to update (ms)", "predicted", "error",
    "device peak (MiB)", "predicted", "error", "fits", "host (MiB)", "page-locked", "link (MiB a step)", "races",
)  # fmt: skip
NOTE = (
    "Equal: every step's loss, the parameters and gradients after the last, bit for bit those of plain training on a "
    "device that holds everything. Step: mean virtual time from the fourth step on, copy of the batch and read of the "
    "loss included. With noise: its growth where each kernel's time varies. Forward to update: the last step without "
    "these two, as predicted from the measured step, launches included. Device peak: without the first step. Fits: "
    "within the device that the layouts are for; plain and FSDP2 train on one that holds everything. Host: parameters, "
    "gradients and states there. FSDP2's updates take as long on the host as a layout's. fsdp2: all on the host, every "
    "block checkpointed; fsdp2-plan: as the first policy's plan."
)


@dataclass(frozen=True)
class Facts:
    """What all rows share: the settings, the model's numbers, the device that layouts are for, plain training."""

    composed: ComposedLayout
    parameters: int
    device_bytes: int
    plain: Trained


def row_of(facts: Facts, name: str, solver: str, done: Trained | None, more: Mapping[str, object]) -> Row:
    """A policy's row; `done` is None where nothing fits, as `more["reason"]` says."""
    composed, settings = facts.composed, facts.composed.settings
    found: dict[str, Any] = {
        "steps": settings.steps,
        "parameters": facts.parameters,
        "states_bytes": 16 * facts.parameters,
        "budget_bytes": facts.device_bytes,
        **{key: value for key, value in more.items() if key != "reason"},
    }
    if done is not None:
        found |= _executed(done, facts.plain) | ({} if name == PLAIN else equalities(done, facts.plain))
    return Row(
        experiment=settings.name,
        asked={
            "policy": name,
            "solver": solver,
            "times_larger": settings.times_larger,
            "host_budget": settings.host_budget,
            "noise": settings.noise,
            "model": {key: value for key, value in asdict(composed.shape).items() if key not in UNUSED},
            "hardware": settings.hardware.file,
        },
        outcome="ok" if done is not None else "infeasible",
        reason=None if done is not None else str(more["reason"]),
        figures=found,
        provenance=f"sim-executed, hardware {settings.hardware.file}, torch {torch.__version__}",
        commit=commit(),
        seed=composed.shape.seed,
    )


def _executed(done: Trained, plain: Trained) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step_us": done.step_us,
        "exposed_us": done.step_us - plain.step_us,
        "peak_bytes": done.peak_bytes,
        "peak_reserved_bytes": done.reserved_bytes,
        "host_bytes": done.host_bytes,
        "pinned_bytes": done.pinned_bytes,
        "retries": done.retries,
        "races": done.races,
        "losses": done.losses,
    }
    if done.told is not None:
        told = done.told
        found |= {"lane_step_us": told.step_us, "predicted_lane_step_us": told.predicted_step_us}
    if done.trace:
        found |= {"swapped_bytes": moved_bytes(done.trace), "hidden_us": hidden_us(done.trace)}
    return found


def planned_figures(plan: Decided) -> dict[str, Any]:
    """What was decided, and what it promises."""
    told, solution = plan.plan, plan.solution
    return {
        "persistent": len(told.persistent),
        "chunks": len(plan.problem.chunks),
        "buffers": told.buffers,
        **{policy: told.policies[1:-1].count(policy) for policy in ("keep", "swap", "checkpoint")},
        "predicted_peak_bytes": plan.peak_bytes(),
        **(
            {}
            if solution is None
            else {
                "status": solution.status.value,
                "objective_us": solution.objective,
                "bound_us": solution.bound,
            }
        ),
    }


def broken(row: Row) -> bool:
    """Whether a training changed a bit or raced, or one under a layout needed more than its device has."""
    found = row.figures
    too_large = "predicted_peak_bytes" in found and found.get("peak_bytes", 0) > found["budget_bytes"]
    return bool(found.get("races")) or too_large or not all(found.get(name, True) for name in EQUAL)


def table_of(rows: Sequence[Row]) -> Table:
    """A line for each training."""
    asked, found = rows[0].asked, rows[0].figures
    model = asked["model"]
    title = (
        f"GPT of {model['layers']} layers, width {model['width']}: {found['parameters']:,} parameters with "
        f"{found['states_bytes'] / MIB:.1f} MiB of states, {found['states_bytes'] / found['budget_bytes']:.2f} times "
        f"the {found['budget_bytes'] / MIB:.1f} MiB of the device; {found['steps']} steps"
    )
    return Table(title, HEAD, tuple(map(_line, rows)), f"{NOTE} {rows[0].provenance}.")


def _line(row: Row) -> tuple[str, ...]:
    found, name = row.figures, str(row.asked["policy"])
    if row.outcome != "ok":
        return (name, "no plan", *[NOTHING] * (len(HEAD) - 2))
    equal = [found[one] for one in EQUAL if one in found]
    return (
        name,
        _layout(found),
        ("yes" if all(equal) else "NO") if equal else NOTHING,
        f"{found['step_us'] / 1e3:.3f}",
        f"{found['noise_step_us'] / found['step_us'] - 1:+.2%}" if "noise_step_us" in found else NOTHING,
        f"{found['lane_step_us'] / 1e3:.3f}" if "lane_step_us" in found else NOTHING,
        *_beside(found, "lane_step_us", 1e3),
        f"{found['peak_bytes'] / MIB:.3f}",
        *_beside(found, "peak_bytes", MIB),
        "yes" if found["peak_bytes"] <= found["budget_bytes"] else "no",
        f"{found['host_bytes'] / MIB:.1f}",
        f"{found['pinned_bytes'] / MIB:.1f}",
        f"{found['swapped_bytes'] / MIB:.1f}" if "swapped_bytes" in found else NOTHING,
        str(found["races"]),
    )


def _beside(found: Mapping[str, Any], figure: str, unit: float) -> tuple[str, str]:
    """The prediction and how far it is off what was executed."""
    predicted = found.get(f"predicted_{figure}")
    if predicted is None:
        return NOTHING, NOTHING
    return f"{predicted / unit:.3f}", f"{predicted / found[figure] - 1:+.2%}"


def _layout(found: Mapping[str, Any]) -> str:
    if "chunks" not in found:
        return NOTHING
    blocks = ", ".join(f"{found[policy]} {policy}" for policy in ("keep", "swap", "checkpoint") if found[policy])
    return f"{found['persistent']} of {found['chunks']} chunks persist, {found['buffers']} buffers; {blocks}"
