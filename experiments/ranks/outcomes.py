"""A run of ranks as a row and tables."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from experiments.ranks.programs import Trained
from experiments.ranks.record import RankFigures
from experiments.ranks.settings import STYLES, Carrier, ComposedRanks
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


def equalities(found: Trained, wanted: Trained) -> dict[str, bool]:
    """Whether losses, gradients and parameters are those of the reference, bit for bit."""
    return {
        "equal_losses": found.losses == wanted.losses,
        "equal_gradients": _equal(found.gradients, wanted.gradients),
        "equal_parameters": _equal(found.parameters, wanted.parameters),
    }


def _equal(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    return found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)


def row_of(
    composed: ComposedRanks,
    trained: Sequence[Trained],
    wanted: Sequence[Trained] | None,
    figures: Sequence[RankFigures],
    races: int | None,
) -> Row:
    """The run's row: what each rank did stands in lists by rank."""
    settings = composed.settings
    compared = (
        [equalities(one, other) for one, other in zip(trained, wanted, strict=True)] if wanted is not None else []
    )
    found: dict[str, Any] = {
        "steps": settings.steps,
        "step_us": max(one.end_us for one in figures) / settings.steps,
        "losses": [one.losses for one in trained],
        "end_us": [one.end_us for one in figures],
        "compute_us": [one.compute_us for one in figures],
        "comm_us": [one.comm_us for one in figures],
        "peak_bytes": [one.peak_bytes for one in figures],
        "races": races,
        **{name: [one[name] for one in compared] for name in (compared[0] if compared else ())},
    }
    return Row(
        experiment=settings.name,
        asked={
            "style": settings.style,
            "ranks": settings.ranks,
            "carrier": settings.carrier.value,
            "microbatches": settings.microbatches if settings.style == "1f1b" else None,
            "noise": settings.noise,
            "model": {name: value for name, value in asdict(composed.shape).items() if name not in UNUSED},
            "hardware": settings.hardware.file,
        },
        outcome="ok",
        figures=found,
        provenance=f"sim-executed, hardware {settings.hardware.file}, torch {torch.__version__}",
        commit=commit(),
        seed=composed.shape.seed,
    )


def equal_in_all(row: Row) -> bool:
    """Whether every rank has the reference's bits, as far as they were compared, and there was no race."""
    return not row.figures["races"] and all(
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
            *(
                _yes(found[name][rank]) if name in found else NOTHING
                for name in ("equal_losses", "equal_gradients", "equal_parameters")
            ),
            f"{found['end_us'][rank] / steps / 1e3:.3f}",
            f"{found['compute_us'][rank] / found['end_us'][rank]:.1%}",
            f"{found['comm_us'][rank] / found['end_us'][rank]:.1%}",
            f"{found['peak_bytes'][rank] / MIB:.2f}",
        )
        for rank in range(asked["ranks"])
    )
    races = "races are seen within a process only" if found["races"] is None else f"{found['races']} races"
    carrier = "threads of one process" if asked["carrier"] == Carrier.threads.value else "processes over gloo"
    title = f"{asked['style']} ({STYLES[asked['style']]}), {asked['ranks']} ranks as {carrier}, {races}"
    return Table(title, HEAD, body, f"{NOTE} {row.provenance}.")


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
