"""Where recomputation goes and what each technique contributes (Figures 10 to 13, §2.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.lynx.outcomes import Cell, compare, notes, quotient, throughput, value
from experiments.lynx.throughput import parallelism
from experiments.pipeline.simulate import pipeline_on
from experiments.reproduction import OUT_OF_MEMORY, Cells, Result, Series
from experiments.reproduction.result import Value
from solvers.ir.hardware import Hardware
from solvers.partition.pipeline import machine_split
from solvers.partition.policies import System
from solvers.workload import ModelShape

BALANCED: dict[str, System] = {
    "full": System("full", "balanced"),
    "selective": System("selective", "balanced"),
    "adapipe": System("adapipe", "balanced"),
    "lynx": System("heu", "balanced", "cooldown"),
}
"""§7.3.1 compares policies only: all on the balanced partition."""
TECHNIQUES: dict[str, System] = {
    "full": BALANCED["full"],
    "recomputation": BALANCED["lynx"],
    "all": System("heu", "greedy-lynx", "cooldown"),
    "dp": System("heu", "dp", "cooldown"),
    "fastest": System("heu", "fastest", "cooldown"),
}
"""§7.3.2 and §7.3.3: HEU on the balanced partition, and on Lynx's; ours beside them."""


def figure_10a(
    cells: Cells, *, cluster: str, models: Sequence[str], microbatch_sizes: Sequence[int], microbatches: int
) -> Result:
    """Recomputation time on the critical path of all stages in one step, and Lynx's reductions."""
    found = _grid(cells, cluster, models, microbatch_sizes, microbatches, BALANCED)
    seconds = {
        name: {
            label: value(cell, name, lambda figures: sum(figures["critical_us"]) / 1e6) for label, cell in found.items()
        }
        for name in BALANCED
    }
    series = [Series(name=name, unit="s", points=points) for name, points in seconds.items()]
    for other in ("full", "adapipe"):
        points = {label: _reduction(seconds["lynx"][label], seconds[other][label]) for label in found}
        series.append(Series(name=f"reduction against {other}", unit="%", points=points))
    return Result(series=tuple(series), notes=tuple(notes(cells.hardware(cluster), found)))


def _reduction(ours: Value, theirs: Value) -> Value:
    """By how much of the other's time ours is less."""
    if theirs == 0:
        return "nothing to reduce"
    ratio = quotient(ours, theirs)
    return 100 * (1 - ratio) if isinstance(ratio, float) else ratio


def _grid(
    cells: Cells,
    cluster: str,
    models: Sequence[str],
    microbatch_sizes: Sequence[int],
    microbatches: int,
    systems: Mapping[str, System],
) -> dict[str, Cell | None]:
    """Models × microbatch sizes on whole machines, labels `MODEL mbs N`."""
    cells.total(len(models) * len(microbatch_sizes))
    machine = cells.hardware(cluster)
    split = machine_split(machine)
    return {
        f"{model} mbs {size}": cells.get(
            {"model": model, "mbs": size}, _compared, cells.shape(model), machine, split, size, microbatches, systems
        )
        for model in models
        for size in microbatch_sizes
    }


def _compared(
    shape: ModelShape,
    machine: Hardware,
    split: Mapping[str, int],
    microbatch: int,
    microbatches: int,
    systems: Mapping[str, System],
) -> dict[str, dict[str, Any]]:
    return compare(pipeline_on(shape, machine, parallelism(split, microbatch, microbatches)), systems)


def figure_10b(cells: Cells, *, cluster: str, models: Sequence[str], microbatch_size: int, microbatches: int) -> Result:
    """The forward time of each stage's operators by what Lynx does with them, labels `MODEL stage S`."""
    found = _grid(cells, cluster, models, [microbatch_size], microbatches, BALANCED)
    parts: dict[str, dict[str, Value]] = {
        name: {} for name in ("on demand", "overlapping", "not recomputed", "overhead removed")
    }
    stages = machine_split(cells.hardware(cluster))["pipeline"]
    for model in models:
        cell = found[f"{model} mbs {microbatch_size}"]
        for stage in range(stages):
            for name, points in parts.items():
                points[f"{model} stage {stage}"] = _stage_part(cell, stage, name)
    series = tuple(Series(name=name, unit="%", points=points) for name, points in parts.items())
    return Result(series=series, notes=tuple(notes(cells.hardware(cluster), found)))


def _stage_part(cell: Cell | None, stage: int, name: str) -> Value:
    if cell is None:
        return None
    if "reason" in cell["lynx"]:
        return OUT_OF_MEMORY
    lynx = cell["lynx"]
    demand = lynx["critical_us"][stage]
    hidden = lynx["window_hidden_us"][stage] + lynx["stall_hidden_us"][stage]
    kept = lynx["kept_us"][stage]
    if name == "overhead removed":
        full = value(cell, "full", lambda figures: float(figures["critical_us"][stage]))
        return _reduction(float(demand), full)
    part = {"on demand": demand, "overlapping": hidden, "not recomputed": kept}[name]
    return float(100 * part / (demand + hidden + kept))


def figure_11(
    cells: Cells, *, cluster: str, models: Sequence[str], microbatch_sizes: Sequence[int], microbatches: int
) -> Result:
    """Throughput of HEU on Lynx's partition, on dp's, and on the fastest one, over that on the balanced partition."""
    found = _grid(cells, cluster, models, microbatch_sizes, microbatches, TECHNIQUES)
    names = {"partition over balanced": "all", "dp over balanced": "dp", "fastest over balanced": "fastest"}
    series = [_over(found, name, one, "recomputation") for name, one in names.items()]
    return Result(series=tuple(series), notes=(*notes(cells.hardware(cluster), found), *_partitions(found)))


def _over(found: Mapping[str, Cell | None], name: str, one: str, other: str) -> Series:
    points = {label: quotient(throughput(cell, one), throughput(cell, other)) for label, cell in found.items()}
    return Series(name=name, unit="x", points=points)


def _partitions(found: Mapping[str, Cell | None]) -> list[str]:
    """How each cell was cut."""
    told = []
    for label, cell in found.items():
        cuts = {} if cell is None else {name: one["layers"] for name, one in cell.items() if "layers" in one}
        if cuts:
            told.append(
                f"{label}: " + ", ".join(f"{name} {'-'.join(map(str, cut))}" for name, cut in cuts.items()) + "."
            )
    return told


def figure_12(cells: Cells, *, cluster: str, model: str, microbatch_size: int, microbatches: int) -> Result:
    """Idle time of all stages with the balanced and with Lynx's partition."""
    found = _grid(cells, cluster, [model], [microbatch_size], microbatches, TECHNIQUES)
    (label,) = found
    idle = {
        name: value(found[label], name, lambda figures: sum(figures["bubble_us"]) / 1e6)
        for name in ("recomputation", "all", "dp", "fastest")
    }
    removed = {name: _reduction(idle[name], idle["recomputation"]) for name in ("all", "dp", "fastest")}
    return Result(
        series=(
            Series(name="bubbles removed", unit="%", points={label: removed["all"]}),
            Series(name="bubbles removed by dp", unit="%", points={label: removed["dp"]}),
            Series(name="bubbles removed by the fastest partition", unit="%", points={label: removed["fastest"]}),
            Series(name="bubbles", unit="s", points=dict(idle)),
        ),
        notes=(*notes(cells.hardware(cluster), found), *_partitions(found)),
    )


def figure_13(
    cells: Cells, *, cluster: str, models: Sequence[str], microbatch_sizes: Sequence[int], microbatches: int
) -> Result:
    """Speed-up over full recomputation of HEU, and of HEU with Lynx's partition; each one's share of the gain."""
    found = _grid(cells, cluster, models, microbatch_sizes, microbatches, TECHNIQUES)
    first, both = (
        _over(found, "recomputation over full", "recomputation", "full"),
        _over(found, "all over full", "all", "full"),
    )
    shares: dict[str, dict[str, Value]] = {"recomputation": {}, "partition": {}}
    for label, total in both.points.items():
        alone = first.points[label]
        share = quotient(_excess(alone), _excess(total))
        shares["recomputation"][label] = 100 * share if isinstance(share, float) else share
        shares["partition"][label] = 100 * (1 - share) if isinstance(share, float) else share
    series = [Series(name=f"share of {name}", unit="%", points=points) for name, points in shares.items()]
    return Result(series=(first, both, *series), notes=(*notes(cells.hardware(cluster), found), *_partitions(found)))


def _excess(ratio: Value) -> Value:
    return ratio - 1 if isinstance(ratio, float) else ratio
