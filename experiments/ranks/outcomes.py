"""A run of ranks as a row and tables."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from experiments.bits import same_bits
from experiments.ranks.carriers import Carried
from experiments.ranks.programs import Trained
from experiments.ranks.record import RankFigures
from experiments.ranks.settings import STYLES, Carrier, ComposedRanks, RankDevice, RanksSettings
from experiments.rows import commit
from experiments.tables import NOTHING, Table
from solvers.ir import Row

MIB = 2**20
UNUSED = {"tied", "clip"}
"""What the shape of a GPT has and this experiment does not."""
HEAD = (
    "rank", "loss", "equal losses", "gradients", "parameters", "step (ms)", "computes", "communicates", "peak (MiB)",
)  # fmt: skip
NOTE = (
    "Equal: torch.equal with one process on the CPU that computes the same shards and sums in rank order, of every "
    "loss, of the last step's gradients and of the parameters after it. Step: mean virtual time. Computes and "
    "communicates: shares of the run in which the rank's device has a kernel, or an operation between ranks."
)
NOTE_OF_REAL = (
    "Under equal: the largest difference to one process on the CPU that sums in rank order, which a real device does "
    "not: of losses as a share, of gradients and parameters in their own units. Times are not taken."
)
COMPARED = {"loss": "losses", "gradient": "gradients", "parameter": "parameters"}
LOSS_TOLERANCE = 0.01
"""How far a loss on a real device may be off the reference's, as a share of it."""


def equalities(found: Trained, wanted: Trained) -> dict[str, bool]:
    """Whether losses, gradients and parameters are those of the reference, bit for bit."""
    return {
        "equal_losses": found.losses == wanted.losses,
        "equal_gradients": _equal(found.gradients, wanted.gradients),
        "equal_parameters": _equal(found.parameters, wanted.parameters),
    }


def differences(found: Trained, wanted: Trained) -> dict[str, float]:
    """By how much a rank of a real device, which sums in another order, is off the reference at most.

    Losses as a share of the reference's; gradients and parameters in their own units.
    """
    losses = zip(found.losses, wanted.losses, strict=True)
    return {
        "loss_difference": max((abs(one - other) / abs(other) for one, other in losses), default=0.0),
        "gradient_difference": _furthest(found.gradients, wanted.gradients),
        "parameter_difference": _furthest(found.parameters, wanted.parameters),
    }


def _furthest(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    if found.keys() != wanted.keys():
        return math.inf
    # A shard may be empty.
    pairs = [(found[name], wanted[name]) for name in wanted if wanted[name].numel() or found[name].numel()]
    return max((float((one - other).abs().max()) for one, other in pairs), default=0.0)


def _equal(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    return found.keys() == wanted.keys() and all(same_bits(found[name], wanted[name]) for name in wanted)


def row_of(
    composed: ComposedRanks, done: Carried[Trained], wanted: Sequence[Trained] | None, figures: Sequence[RankFigures]
) -> Row:
    """The run's row: what each rank did stands in lists by rank."""
    settings = composed.settings
    simulated = settings.device is RankDevice.sim
    compare = equalities if simulated else differences
    compared = [compare(*pair) for pair in zip(done.trained, wanted, strict=True)] if wanted is not None else []
    found: dict[str, Any] = {
        "steps": settings.steps,
        "step_us": max(one.end_us for one in figures) / settings.steps if simulated else None,
        "losses": [one.losses for one in done.trained],
        "end_us": [one.end_us for one in figures],
        "compute_us": [one.compute_us for one in figures],
        "comm_us": [one.comm_us for one in figures],
        "peak_bytes": [one.peak_bytes for one in figures],
        "races": done.races,
        **{name: [one[name] for one in compared] for name in (compared[0] if compared else ())},
    }
    return Row(
        experiment=settings.name,
        asked={
            "style": settings.style,
            "ranks": settings.ranks,
            "carrier": settings.carrier.value,
            "device": settings.device.value,
            "microbatches": settings.microbatches if settings.style == "1f1b" else None,
            "noise": settings.noise,
            "model": {name: value for name, value in asdict(composed.shape).items() if name not in UNUSED},
            "hardware": settings.hardware.file if simulated else None,
        },
        outcome="ok",
        figures=found,
        provenance=f"{_how(settings, done)}, torch {torch.__version__}",
        commit=commit(),
        seed=composed.shape.seed,
    )


def _how(settings: RanksSettings, done: Carried[Trained]) -> str:
    if settings.device is RankDevice.sim:
        return f"sim-executed, hardware {settings.hardware.file}"
    kinds = dict.fromkeys(report.source.partition(", ")[2] for report in done.reports)
    joined = "NCCL" if settings.device is RankDevice.cuda else "gloo"
    return f"executed on {settings.ranks} ranks of {', '.join(kinds)} by {joined}"


def equal_in_all(row: Row) -> bool:
    """Whether every rank has the reference's bits (on real devices losses near its own), and there was no race.

    As far as they were compared.
    """
    far = [one for one in row.figures.get("loss_difference", []) if not one <= LOSS_TOLERANCE]
    return not (row.figures["races"] or far) and all(
        all(row.figures.get(name, [])) for name in ("equal_losses", "equal_gradients", "equal_parameters")
    )


def table_of(row: Row) -> Table:
    """A line for each rank."""
    asked, found = row.asked, row.figures
    steps = found["steps"]
    body = tuple(
        (
            str(rank),
            f"{found['losses'][rank][-1]:.6f}" if found["losses"][rank] else NOTHING,
            *(_compared(found, one, rank) for one in COMPARED),
            f"{found['end_us'][rank] / steps / 1e3:.3f}" if found["step_us"] is not None else NOTHING,
            *(_share(found[name][rank], found["end_us"][rank]) for name in ("compute_us", "comm_us")),
            f"{found['peak_bytes'][rank] / MIB:.2f}" if found["peak_bytes"][rank] is not None else NOTHING,
        )
        for rank in range(asked["ranks"])
    )
    real = asked.get("device", "sim") != RankDevice.sim.value
    races = "races are seen within a process only" if found["races"] is None else f"{found['races']} races"
    carrier = "threads of one process" if asked["carrier"] == Carrier.threads.value else "processes over gloo"
    how = f"processes on {asked['device']}" if real else f"{carrier}, {races}"
    title = f"{asked['style']} ({STYLES[asked['style']]}), {asked['ranks']} ranks as {how}"
    return Table(title, HEAD, body, f"{NOTE_OF_REAL if real else NOTE} {row.provenance}.")


def _compared(found: dict[str, Any], what: str, rank: int) -> str:
    """Yes or no; of a real device, how far off at most."""
    equal, difference = f"equal_{COMPARED[what]}", f"{what}_difference"
    if equal in found:
        return _yes(found[equal][rank])
    return f"{found[difference][rank]:.1e}" if difference in found else NOTHING


def _share(part_us: float | None, whole_us: float) -> str:
    return NOTHING if part_us is None else f"{part_us / whole_us:.1%}"


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


def tables_of_rows(rows: Sequence[Row]) -> list[Table]:
    """The ranks of each run."""
    return [table_of(row) for row in rows]
