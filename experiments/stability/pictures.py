"""The losses of all policies over the steps, the validations among them, and where a training ended early."""

from collections.abc import Sequence
from typing import Any, cast

from matplotlib import rc_context
from matplotlib.figure import Figure

from experiments.plots import STYLE, settled
from experiments.stability.record import Run
from experiments.stability.settings import Policy

COLOURS = {
    Policy.unlimited: "#7f7f7f",
    Policy.none: "#8c564b",
    Policy.recompute: "#9467bd",
    Policy.features: "#1f77b4",
    Policy.forgets: "#17becf",
    Policy.index_guard: "#2ca02c",
    Policy.features_alone: "#ff7f0e",
    Policy.index: "#d62728",
}


def stability_figure(runs: Sequence[Run], title: str) -> Figure:
    """Equal curves lie on top of each other, so the first is wide and later ones are dashed; a cross ends a crash."""
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(8.6, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for number, run in enumerate(runs):
            style: dict[str, Any] = {"lw": 1.4, "ls": (0, (4, 2 + 2 * number))} if number else {"lw": 4, "alpha": 0.45}
            steps, losses = [entry.step for entry in run.entries], [entry.loss for entry in run.entries]
            colour, label = COLOURS[run.policy], run.policy.value
            if run.failed_at is not None:
                label += f": ended at step {run.failed_at}"
                at = min(run.failed_at, len(runs[0].entries))  # one further: in the validation after the last step
                height = runs[0].entries[at - 1].loss  # where the reference is at that step
                axes.plot([run.failed_at], [height], marker="X", ms=9, ls="", color=colour, zorder=5)
            axes.plot(steps, losses, color=colour, label=label, **style)
        checked = [(entry.step, entry.validation) for entry in runs[0].entries if entry.validation is not None]
        axes.plot(
            [step for step, _ in checked],
            [loss for _, loss in checked],
            marker="o", ms=3.5, lw=0, color="black", label=f"validation ({runs[0].policy.value})",
        )  # fmt: skip
        axes.set(xlabel="training step", ylabel="loss (nats per byte)", title=title)
        axes.grid(axis="y", color="#e5e5e5", lw=0.7)
        axes.legend(loc="upper right")
        return settled(figure)
