"""What rows and titles say of a cluster experiment."""

from pathlib import Path
from typing import Any

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


def asked_of(settings: ClusterSettings) -> dict[str, Any]:
    """What a row says was asked."""
    names = (
        "shape", "cluster", "grid", "microbatches", "tensor", "sequence", "flash", "head", "gb_per_s", "restart_s",
    )  # fmt: skip
    return {name: getattr(settings, name) for name in names}


def failures_of(settings: ClusterSettings) -> dict[str, Any]:
    """Where the failures come from: seeds and rates, or a trace; then the rate is only what the policies expect."""
    if settings.trace is not None:
        found: dict[str, Any] = {"hours": settings.hours, "trace": settings.trace, "start": settings.start.value}
        return {**found, "expected_rate_per_h": settings.rate_per_h, "spares": settings.spares}
    names = ("hours", "rate_per_h", "repair_h", "trace", "seeds", *(("spares",) if settings.spares else ()))
    return {name: getattr(settings, name) for name in names}
