"""Policies that ran as rows and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from experiments.recompute.figures import NS, Executed
from experiments.recompute.planning import Planned, budget_of
from experiments.recompute.prediction import Prediction, predict
from experiments.recompute.settings import ComposedRecompute
from experiments.recompute.step_log import StepLog
from experiments.rows import commit
from experiments.tables import NOTHING, Table
from solvers.ir import Row

MIB = 2**20
PLAIN = "plain"
"""The row of training without a tape."""
UNUSED = {"tied", "clip"}
"""What the shape of a GPT has and this experiment does not."""
EQUAL = ("equal_losses", "equal_gradients", "equal_parameters", "equal_buffers", "equal_random")
HEAD = (
    "policy", "equal", "step (ms)", "predicted", "error", "peak (MiB)", "predicted", "error", "within budget",
    "exposed (µs)", "hidden (µs)", "predicted", "no window (µs)",
)  # fmt: skip
NOTE = (
    "Equal: of every rank, each step's losses, gradients and states of random generators, the parameters and buffers "
    "after the last, bit for bit those of training without a tape. Step: mean virtual time without the first. Exposed: "
    "what the step takes longer than plain training. Hidden: kernels that ran beside a collective, from the trace. No "
    "window: planned for windows that the last block in backward order, or a microbatch, does not have, hence exposed."
)
DISTURBED = (
    "policy", "step (ms)", "with noise", "growth", "wrong profiles: other plans", "median", "growth", "worst", "growth",
    "predicted", "peak (MiB)",
)  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """What every policy is compared with: plain training, the same under noise, and a measured step of each rank."""

    plain: Executed
    noisy: Executed | None
    logs: Sequence[StepLog]


def row_of(
    composed: ComposedRecompute,
    name: str,
    spec: str,
    planned: Planned,
    facts: Facts,
    done: Executed | None,
    more: Mapping[str, object],
) -> Row:
    """A policy's row; `done` is None where no plan fits, `more` what else was found: equalities among it."""
    settings = composed.settings
    found: dict[str, Any] = {"steps": settings.steps, "budget_bytes": budget_of(settings, facts.plain.peak_bytes)}
    if planned.solution is not None:
        solution = planned.solution
        found |= {
            "status": solution.status.value,
            "objective_us": None if solution.objective is None else round(solution.objective),
            "bound_us": solution.bound,
            "least_budget_bytes": solution.least_budget_bytes,
        }
    if done is not None:
        found |= _executed(done, facts, settings.steps) | dict(more)
    if done is not None and planned.policies is not None:
        found |= _predicted([predict(log, planned.policies) for log in facts.logs], done, settings.steps)
    if name == PLAIN and facts.noisy is not None:
        found["noise_step_us"] = facts.noisy.step_us
    reason = None if done is not None or planned.solution is None else planned.solution.reason
    return Row(
        experiment=settings.name,
        asked={
            "policy": name,
            "solver": spec,
            "ranks": settings.ranks,
            "carrier": settings.carrier.value,
            "microbatches": settings.microbatches,
            "inflight": settings.inflight,
            "precision": settings.precision,
            "budget_share": settings.budget_share,
            "noise": settings.noise,
            "wrong": settings.wrong,
            "wrong_draws": settings.wrong_draws,
            "model": {key: value for key, value in asdict(composed.shape).items() if key not in UNUSED},
            "hardware": settings.hardware.file,
        },
        outcome="ok" if done is not None else "refused",
        reason=reason,
        figures=found,
        provenance=f"sim-executed, hardware {settings.hardware.file}, torch {torch.__version__}",
        commit=commit(),
        seed=composed.shape.seed,
    )


def _executed(done: Executed, facts: Facts, steps: int) -> dict[str, Any]:
    return {
        "step_us": done.step_us,
        "peak_bytes": done.peak_bytes,
        "exposed_us": done.step_us - facts.plain.step_us,
        "hidden_us": max(done.hidden_ns) / NS / steps,
        "races": done.races,
    }


def _predicted(told: Sequence[Prediction], done: Executed, steps: int) -> dict[str, Any]:
    """The prediction of the rank that needs most, and whether the hidden nanoseconds are each rank's."""
    worst = max(told, key=lambda one: one.step_us)
    return {
        "predicted_step_us": worst.step_us,
        "predicted_peak_bytes": max(one.peak_bytes for one in told),
        "predicted_exposed_us": worst.exposed_us,
        "predicted_hidden_us": worst.hidden_us,
        "late_us": worst.late_us,
        "hidden_exact": all(
            round(one.hidden_us * NS) * steps == hidden for one, hidden in zip(told, done.hidden_ns, strict=True)
        ),
    }


def broken(row: Row) -> bool:
    """Whether a policy that ran changed a bit or raced."""
    kept = [*EQUAL, "noise_equal", "wrong_equal"]
    return bool(row.figures.get("races")) or not all(row.figures.get(name, True) for name in kept)


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """What was executed beside what was predicted; and in other worlds."""
    asked = rows[0].asked
    carrier = "threads" if asked["carrier"] == "threads" else "processes over gloo"
    title = (
        f"Tensor parallelism {asked['ranks']} ({carrier}), {asked['precision']}, {asked['microbatches']} microbatches, "
        f"{asked['inflight']} in flight, budget {asked['budget_share']:.0%} of plain training's peak, "
        f"{rows[0].figures['steps']} steps"
    )
    tables = [Table(title, HEAD, tuple(map(_line, rows)), f"{NOTE} {rows[0].provenance}.")]
    tried = [row for row in rows if "noise_step_us" in row.figures or _wrong_steps(row)]
    if tried:
        draws = asked.get("wrong_draws", 1)
        note = (
            f"Noise: each kernel's time varies by ±{asked['noise']:.0%}. Wrong profiles: the plan is made with each "
            f"operator's and each collective's time off by a factor of its own up to {1 + asked['wrong']:g}, "
            f"{draws} time{'s' * (draws != 1)}, and executed without noise; other plans: how many different ones "
            "beside the right one. Growth is of the step without either. Predicted: the worst draw's step. Peak: the "
            "largest of all draws."
        )
        tables.append(Table("The same in other worlds", DISTURBED, tuple(map(_disturbed, tried)), note))
    return tables


def _line(row: Row) -> tuple[str, ...]:
    found, name = row.figures, str(row.asked["policy"])
    if row.outcome != "ok":
        return (name, "no plan", *[NOTHING] * (len(HEAD) - 2))
    equal = [found[one] for one in EQUAL if one in found]
    predicted = "predicted_step_us" in found
    return (
        name,
        ("yes" if all(equal) else "NO") if equal else NOTHING,
        f"{found['step_us'] / 1e3:.3f}",
        f"{found['predicted_step_us'] / 1e3:.3f}" if predicted else NOTHING,
        f"{found['predicted_step_us'] / found['step_us'] - 1:+.3%}" if predicted else NOTHING,
        f"{found['peak_bytes'] / MIB:.3f}",
        f"{found['predicted_peak_bytes'] / MIB:.3f}" if predicted else NOTHING,
        f"{found['predicted_peak_bytes'] / found['peak_bytes'] - 1:+.3%}" if predicted else NOTHING,
        ("yes" if found["peak_bytes"] <= found["budget_bytes"] else "no") if predicted else NOTHING,
        f"{found['exposed_us']:.3f}",
        f"{found['hidden_us']:.3f}",
        f"{found['predicted_hidden_us']:.3f}" if predicted else NOTHING,
        f"{found['late_us']:.3f}" if predicted else NOTHING,
    )


def _disturbed(row: Row) -> tuple[str, ...]:
    found = row.figures
    step_us: float = found["step_us"]

    def told(us: float) -> list[str]:
        return [f"{us / 1e3:.3f}", f"{us / step_us - 1:+.2%}"]

    cells = [str(row.asked["policy"]), f"{step_us / 1e3:.3f}"]
    cells += told(found["noise_step_us"]) if "noise_step_us" in found else [NOTHING] * 2
    steps = _wrong_steps(row)
    if not steps:
        return (*cells, *[NOTHING] * (len(DISTURBED) - len(cells)))
    worst = steps.index(max(steps))
    predicted, peak = found["wrong_predicted_steps_us"][worst], max(found["wrong_peaks_bytes"])
    cells += [str(found["wrong_other_plans"]), *told(median(steps)), *told(steps[worst])]
    return (*cells, f"{predicted / 1e3:.3f}", f"{peak / MIB:.3f}")


def _wrong_steps(row: Row) -> list[float]:
    steps: list[float] = row.figures.get("wrong_steps_us", [])
    return steps
