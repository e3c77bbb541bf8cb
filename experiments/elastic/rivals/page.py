"""The rivals' rows and their page."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from experiments.elastic.layouts import cores
from experiments.elastic.rivals.runs import Ran
from experiments.elastic.rivals.stage import Asked
from experiments.machine import machine
from experiments.rows import commit
from experiments.tables import NOTHING, Table, to_markdown
from solvers.ir import Row

HEAD = ("way", "failure", "lost (s)", "steps made again", "median step (s)", "losses as without failures", "samples")
NOTE = (
    "Lost: from the failure until the step that it hit had counted, less the way's own median step. Steps made again: "
    "those that had counted before. Samples: microbatches that no step trained on. All detect silence after the same "
    "time, and torchrun was told to wait no longer for a stopped process (its default is 30 s). Ways run one after the "
    "other, so on a busy machine their steps compare badly."
)
CANNOT = {
    "bayplan": "needs a layer's states on a survivor; the job must be cut into layers; Linux, one host so far",
    "torchrun": "go on with fewer processes than it was started with, keep a survivor, keep steps since the checkpoint",
    "torchft": "use the survivors of a broken pipeline, keep the global batch while a replica is away",
}


def row_of(way: str, asked: Asked, plain: Ran | None, failed: Ran | None, why: str | None = None) -> Row:
    """A way's row; None stands for a run that was not made, and `why` says why not."""
    found: dict[str, Any] = {}
    if plain is not None and failed is not None:
        steps = range(asked.steps)
        whole = asked.nodes // asked.pipeline
        away = sum(whole - there for there in failed.replicas.values() if there)
        differences = [abs(plain.losses[one] - failed.losses[one]) / abs(plain.losses[one]) for one in steps]
        found = {
            "step_us": plain.step_us,
            "failures": [asdict(one) for one in failed.failures],
            "equal_losses": all(plain.losses[one] == failed.losses[one] for one in steps),
            "loss_difference": max(differences),
            "microbatches_lost": away * -(-_microbatches(asked) // whole),
            "starts": failed.restarts,
            "losses": [failed.losses[one] for one in steps],
        }
    said = ("job", "nodes", "pipeline", "steps", "every", "hang_s")
    kills = [f"{one.node}@{one.step}.{one.moment}.{one.how}" for one in asked.kills]
    return Row(
        experiment="rivals",
        asked={**{name: getattr(asked, name) for name in said}, "kills": kills, "policy": way},
        outcome="refused" if why else "ok",
        figures=found,
        provenance=(
            f"executed on {asked.nodes} one-thread processes of a CPU ({machine()['processor']}, {cores()} cores) by "
            f"gloo, torch {torch.__version__}"
        ),
        commit=commit(),
        seed=0,
        reason=why,
    )


def _microbatches(asked: Asked) -> int:
    from runtime.elastic import load_job

    return load_job(asked.job, torch.device("cpu")).microbatches


def page(rows: Sequence[Row]) -> str:
    """A line for each failure of each way, and what each way cannot do."""
    lines = [line for row in rows for line in _lines(row)]
    cannot = tuple((str(row.asked["policy"]), CANNOT[str(row.asked["policy"])]) for row in rows)
    note = f"{NOTE} {rows[0].provenance}." if rows else NOTE
    tables = [Table("The same job and failures", HEAD, tuple(lines), note), Table("Cannot", ("way", "cannot"), cannot)]
    return to_markdown(tables)


def _lines(row: Row) -> list[tuple[str, ...]]:
    way, found = str(row.asked["policy"]), row.figures
    if not found:
        return [(way, row.reason or NOTHING, *[NOTHING] * 5)]
    equal = "yes, all bits" if found["equal_losses"] else f"no, off by up to {found['loss_difference']:.2g}"
    samples = "all" if not found["microbatches_lost"] else f"{found['microbatches_lost']} missing"
    return [
        (
            way, f"{'SIGSTOP' if one['how'] == 'stop' else 'SIGKILL'} in step {one['step']}",
            NOTHING if one["lost_us"] is None else f"{one['lost_us'] / 1e6:.1f}", str(one["steps_redone"]),
            f"{found['step_us'] / 1e6:.2f}", equal, samples,
        )
        for one in found["failures"]
    ]  # fmt: skip
