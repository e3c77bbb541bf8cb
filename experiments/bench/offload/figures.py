"""The section `offload` of `make bench`: the race's rows as figures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from experiments.bench.figure import Figure

if TYPE_CHECKING:
    from experiments.bench.offload.model import RaceShape
    from experiments.bench.offload.run import Ran, Way

MIB = 1 << 20


def offload_figures(given: "Sequence[RaceShape] | None" = None, racing: "Sequence[Way] | None" = None) -> list[Figure]:
    """Every way on CUDA where there is one, else on sim (modelled time); ratios are to the plain run's step.

    On sim by both allocators: `exact`, where whatever fits by bytes fits, and `caching`, with CUDA's segments.
    """
    import torch

    from runtime.device.native import why_missing

    device = "cuda" if torch.cuda.is_available() else "sim"
    missing = why_missing("runtime._C") or (why_missing("runtime._sim") if device == "sim" else None)
    if missing is not None:
        return [Figure("race", None, "µs", None, "", missing)]
    from experiments.bench.offload.model import CUDA_SHAPES, SIM_SHAPES
    from experiments.bench.offload.race import race
    from experiments.bench.offload.ways import ways
    from runtime.device import CachingAllocator

    allocators = {"": None} if device == "cuda" else {"exact": None, "caching": CachingAllocator()}
    shapes = given or (CUDA_SHAPES if device == "cuda" else SIM_SHAPES)
    figures = []
    for shape in shapes:
        for allocator, segments in allocators.items():
            rows = race(device, shape, racing or ways(shape.shares), segments=segments)
            where = torch.cuda.get_device_name() if device == "cuda" else f"sim, modelled time, allocator {allocator}"
            title = f"{shape.name}{allocator and ' '}{allocator}"
            figures += [figure_of(row, rows[0], f"{title}, {row.way}", where) for row in rows]
    return figures


def figure_of(row: "Ran", plain: "Ran", name: str, where: str) -> Figure:
    """A row as a figure: its columns are words."""
    if row.step_us is None:
        return Figure(name, None, "µs", None, "", row.error or "not run")
    ratio = None if plain.step_us is None else row.step_us / plain.step_us
    parts = [
        f"peak {_mib(row.peak_bytes)}, segments {_mib(row.reserved_bytes)} MiB",
        f"pinned {_mib(row.pinned_bytes)} MiB",
        f"{row.retries} retries ({row.settled_retries} after warm-up)",
        "no copies" if row.hidden is None else f"{row.hidden:.0%} of copies hidden",
        "losses equal" if row.equals(plain) else "losses differ",
        *([row.said] if row.said else []),
        where,
    ]
    return Figure(name, row.step_us, "µs", ratio, "plain", "; ".join(parts))


def _mib(size: int | None) -> str:
    return "?" if size is None else f"{size / MIB:.1f}"
