"""The rows of a stack of layers as tables."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

GIB = 1 << 30
NOTHING = "–"
HEAD = (
    "policy", "peak (GiB)", "fits", "step (ms)", "exposed", "predicted", "hidden", "predicted", "objective",
    "of full's", "simulated: exposed", "hidden", "of full's", "peak (GiB)",
)  # fmt: skip
ASKED = ("shape", "cluster", "tensor", "pipeline", "stage", "microbatch", "microbatches")
NOTE = (
    "Exposed, hidden: microseconds for each layer and microbatch, of recomputation on the critical path and beside "
    "all-reduces, executed by shapes and predicted by a walk through one measured step; objective: the layer problem's "
    "for the steady state. Of full's: exposed, as a share of full recomputation's. Simulated: the same solver on "
    "formulas and links, nothing run; the peak is the layer problem's."
)


def page(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a table for each stage."""
    parts = []
    for asked, own in groupby(rows, key=lambda row: tuple(row[name] for name in ASKED)):
        parts.append(_table(dict(zip(ASKED, asked, strict=True)), list(own)))
    return "\n".join([*parts, NOTE, ""])


def _table(asked: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    first = rows[0]
    title = (
        f"**{asked['shape']} on {asked['cluster']}: stage {asked['stage']} of {asked['pipeline']}, {first['layers']} "
        f"layers over {asked['tensor']} devices, {asked['microbatches']} microbatches of {asked['microbatch']} "
        f"samples, {first['budget_bytes'] / GIB:.1f} GiB a device** (commit {first['commit']})"
    )
    full = {
        how: next((row[how]["exposed_us"] for row in rows if row["policy"] == "full" and how in row), None)
        for how in ("executed", "simulated")
    }
    lines = [title, "", "| " + " | ".join(HEAD) + " |", "|---|" + "---:|" * (len(HEAD) - 1)]
    lines += ["| " + " | ".join(_cells(row, full)) + " |" for row in rows]
    return "\n".join([*lines, ""])


def _cells(row: dict[str, Any], full: dict[str, float | None]) -> list[str]:
    ran, told, formulas = (row.get(how) for how in ("executed", "predicted", "simulated"))
    each = row["layers"] * row["microbatches"]

    def share(found: dict[str, Any] | None, how: str) -> str:
        return NOTHING if found is None or not full[how] else f"{found['exposed_us'] / full[how]:.1%}"

    def mean(found: dict[str, Any] | None, name: str) -> str:
        return NOTHING if found is None else f"{found[name] / each:.1f}"

    return [
        row["policy"],
        NOTHING if ran is None else f"{ran['peak_bytes'] / GIB:.2f}",
        "no plan" if ran is None else ("yes" if ran["peak_bytes"] <= row["budget_bytes"] else "no"),
        NOTHING if ran is None else f"{ran['step_us'] / 1e3:.3f}",
        mean(ran, "exposed_us"),
        mean(told, "exposed_us"),
        mean(ran, "hidden_us"),
        mean(told, "hidden_us"),
        NOTHING if told is None else f"{told['objective_us']:.1f}",
        share(ran, "executed"),
        mean(formulas, "exposed_us"),
        mean(formulas, "hidden_us"),
        share(formulas, "simulated"),
        NOTHING if formulas is None else f"{formulas['peak_bytes'] / GIB:.2f}",
    ]
