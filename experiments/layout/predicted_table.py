"""Executed layouts and their predictions as a table, with the worst and the median error."""

from collections.abc import Sequence
from statistics import median

from experiments.tables import NOTHING, Table
from solvers.ir import Row

MIB = 2**20
HEAD = (
    "model", "layout of", "chunks persist, buffers", "blocks", "step (ms)", "error", "planned", "peak (MiB)", "error",
    "with noise", "equal",
)  # fmt: skip
NOTE = (
    "Step: executed, from the begin of forward to the end of the optimizer's step. Error: (predicted − executed) / "
    "executed. Planned: how far the objective is off that the solver minimised, which counts no launches. Peak: from "
    "the second step on. With noise: the step's growth where each kernel's time varies by up to ±10 %. Equal: losses "
    "are plain training's, bit for bit, with noise too. Solvers plan for 45 % of what everything on the device takes; "
    "of a wrong profile each block's times are off by factors of ½ to 2, drawn at random: its error is that of the "
    "right prediction for the plan that was made of it."
)


def step_error(row: Row) -> float:
    """(predicted − executed) / executed."""
    return float(row.figures["predicted_step_us"] / row.figures["step_us"] - 1)


def peak_error(row: Row) -> float:
    """The same of the device's peak."""
    return float(row.figures["predicted_peak_bytes"] / row.figures["peak_bytes"] - 1)


def table_of(rows: Sequence[Row]) -> Table:
    """A line for each layout; the title says how good the predictions are."""
    done = [row for row in rows if row.outcome == "ok"]
    title = f"{len(done)} layouts of {len({row.asked['model'] for row in done})} models"
    if done:
        steps, peaks = ([abs(error(row)) for row in done] for error in (step_error, peak_error))
        title += (
            f": error of the step at best {min(steps):.3%}, median {median(steps):.3%}, worst {max(steps):.3%}; of the "
            f"peak {min(peaks):.4%}, {median(peaks):.4%}, {max(peaks):.4%}"
        )
    return Table(title, HEAD, tuple(map(_line, rows)), f"{NOTE} {rows[0].provenance}.")


def _line(row: Row) -> tuple[str, ...]:
    found, name = row.figures, (str(row.asked["model"]), str(row.asked["policy"]))
    if row.outcome != "ok":
        return (*name, "no plan", *[NOTHING] * (len(HEAD) - 3))
    blocks = ", ".join(f"{found[policy]} {policy}" for policy in ("keep", "swap", "checkpoint") if found[policy])
    noisy = found.get("noise_step_us")
    return (
        *name,
        f"{found['persistent']} of {found['chunks']}, {found['buffers']}",
        blocks,
        f"{found['step_us'] / 1e3:.3f}",
        f"{step_error(row):+.3%}",
        f"{found['planned_step_us'] / found['step_us'] - 1:+.1%}",
        f"{found['peak_bytes'] / MIB:.3f}",
        f"{peak_error(row):+.4%}",
        NOTHING if noisy is None else f"{noisy / found['step_us'] - 1:+.2%}",
        "yes" if found["equal_losses"] and found.get("noise_equal_losses", True) else "NO",
    )
