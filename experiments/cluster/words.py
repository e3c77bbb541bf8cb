"""What rows and titles say of a cluster experiment."""

from pathlib import Path

from experiments.cluster.settings import ClusterSettings, make_grid


def provenance(settings: ClusterSettings) -> str:
    """Where the figures come from."""
    return (
        f"simulated, times by roofline of {settings.shape} on hardware {settings.cluster}, "
        f"{settings.gb_per_s:g} GB/s between nodes; nothing was executed"
    )


def about(settings: ClusterSettings) -> str:
    """The experiment in a line."""
    grid = make_grid(settings)
    text = f"{settings.shape} on {grid.data} pipelines of {grid.depth}"
    text += f", {settings.spares} spare nodes" if settings.spares else ""
    if settings.trace is not None:
        return f"{text}, trace {Path(settings.trace).name}"
    if settings.seeds:
        return f"{text}, {settings.seeds} times {settings.hours:g} h, {100 * settings.rate_per_h:g} % an hour"
    return f"{text}, {settings.lost} lost"
