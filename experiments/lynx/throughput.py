"""Throughput of the systems over models, microbatches, clusters, parallelism and sequences (Figures 9, 15, 16, §8)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from experiments.lynx.outcomes import BEST, Cell, best_figures, compare, notes, quotient, throughput, throughputs
from experiments.pipeline.simulate import pipeline_on
from experiments.reproduction import Cells, Result, Series
from solvers.ir.hardware import Hardware
from solvers.partition.pipeline import machine_split
from solvers.partition.policies import SYSTEMS
from solvers.workload import ModelShape, Parallelism

Split = Mapping[str, int]


def figure_9(
    cells: Cells, *, clusters: Sequence[str], models: Sequence[str], microbatch_sizes: Sequence[int], microbatches: int
) -> Result:
    """Models × microbatch sizes × clusters, each on whole machines; labels `CLUSTER MODEL mbs N`."""
    cells.total(len(clusters) * len(models) * len(microbatch_sizes))
    found: dict[str, Cell | None] = {}
    told: list[str] = []
    for cluster in clusters:
        machine = cells.hardware(cluster)
        split = machine_split(machine)
        own = {}
        for model in models:
            for size in microbatch_sizes:
                key = {"cluster": cluster, "model": model, "mbs": size}
                own[f"{cluster} {model} mbs {size}"] = cells.get(
                    key, step_cell, cells.shape(model), machine, split, size, microbatches
                )
        found |= own
        told += notes(machine, own)
    return Result(series=(*throughputs(found), *_headroom(found)), notes=tuple(told))


def _headroom(found: Mapping[str, Cell | None]) -> list[Series]:
    """What any mix of policies and any partition could gain over AdaPipe and over Lynx, at most."""
    return [
        Series(
            name=f"best possible over {name}",
            unit="x",
            points={label: quotient(throughput(cell, BEST), throughput(cell, name)) for label, cell in found.items()},
        )
        for name in ("adapipe", "lynx")
    ]


def step_cell(
    shape: ModelShape,
    machine: Hardware,
    split: Split,
    microbatch: int,
    microbatches: int,
    sequence_parallel: bool = False,
) -> dict[str, dict[str, Any]]:
    """One configuration under all systems of §7.1, and the bound on any."""
    pipeline = pipeline_on(shape, machine, parallelism(split, microbatch, microbatches, sequence_parallel))
    return {**compare(pipeline, SYSTEMS), BEST: best_figures(pipeline)}


def parallelism(split: Split, microbatch: int, microbatches: int, sequence_parallel: bool = False) -> Parallelism:
    """A split of an entry with a step's microbatches."""
    return Parallelism(
        tensor=split["tensor"],
        pipeline=split["pipeline"],
        sequence_parallel=sequence_parallel,
        microbatch=microbatch,
        microbatches=microbatches,
    )


def figure_15(
    cells: Cells,
    *,
    cluster: str,
    models: Sequence[str],
    splits: Sequence[Split],
    microbatch_size: int,
    microbatches: int,
    beside: str,
) -> Result:
    """Models × splits on a cluster, labels `MODEL tp T pp P`; the same models on whole machines of another one."""
    cells.total(len(models) * (len(splits) + 1))
    machine, other = cells.hardware(cluster), cells.hardware(beside)
    whole = machine_split(other)
    found, next_to = {}, {}
    for model in models:
        shape = cells.shape(model)
        for split in splits:
            label = f"{model} {split_label(split)}"
            found[label] = cells.get({"at": label}, step_cell, shape, machine, split, microbatch_size, microbatches)
        label = f"{model} {split_label(whole)}"
        key = {"beside": label}
        next_to[label] = cells.get(key, step_cell, shape, other, whole, microbatch_size, microbatches)
    series = [*throughputs(found), *_headroom(found)]
    series += throughputs(next_to, prefix=f"{beside.rpartition('-')[2]} ")
    return Result(series=tuple(series), notes=(*notes(machine, found), *notes(other, next_to)))


def split_label(split: Split) -> str:
    """`tp T pp P`."""
    return f"tp {split['tensor']} pp {split['pipeline']}"


def figure_16a(
    cells: Cells, *, cluster: str, model: str, splits: Sequence[Split], microbatch_size: int, microbatches: int
) -> Result:
    """Splits of one model, labels `tp T pp P`; Lynx over each baseline, labels `BASELINE tp T pp P`."""
    cells.total(len(splits))
    machine, shape = cells.hardware(cluster), cells.shape(model)
    found = {}
    for split in splits:
        key = {"split": split_label(split)}
        found[key["split"]] = cells.get(key, step_cell, shape, machine, split, microbatch_size, microbatches)
    gains = {
        f"{name} {label}": quotient(throughput(cell, "lynx"), throughput(cell, name))
        for name in SYSTEMS
        if name != "lynx"
        for label, cell in found.items()
    }
    each = Series(name="lynx over each baseline", unit="x", points=gains)
    return Result(series=(*throughputs(found), *_headroom(found), each), notes=tuple(notes(machine, found)))


def figure_16b(
    cells: Cells,
    *,
    cluster: str,
    model: str,
    sequences: Sequence[int],
    tensor: int,
    pipeline: int,
    microbatch_size: int,
    microbatches: int,
) -> Result:
    """Sequence lengths of one model, labels `sequence N`."""
    cells.total(len(sequences))
    machine, split = cells.hardware(cluster), {"tensor": tensor, "pipeline": pipeline}
    found = {}
    for length in sequences:
        shape = msgspec.structs.replace(cells.shape(model), sequence=length)
        key = {"sequence": length}
        found[f"sequence {length}"] = cells.get(key, step_cell, shape, machine, split, microbatch_size, microbatches)
    return Result(series=(*throughputs(found), *_headroom(found)), notes=tuple(notes(machine, found)))


def sequence_parallelism(
    cells: Cells, *, cluster: str, models: Sequence[str], microbatch_sizes: Sequence[int], microbatches: int
) -> Result:
    """Lynx with sequence parallelism over Lynx without, labels `MODEL mbs N`."""
    cells.total(2 * len(models) * len(microbatch_sizes))
    machine = cells.hardware(cluster)
    split = machine_split(machine)
    found: dict[bool, dict[str, Cell | None]] = {False: {}, True: {}}
    for model in models:
        for size in microbatch_sizes:
            for with_it, own in found.items():
                key = {"model": model, "mbs": size, "sequence_parallel": with_it}
                shape = cells.shape(model)
                own[f"{model} mbs {size}"] = cells.get(
                    key, step_cell, shape, machine, split, size, microbatches, with_it
                )
    gain = {}
    for label, cell in found[True].items():
        ratio = quotient(throughput(cell, "lynx"), throughput(found[False][label], "lynx"))
        gain[label] = 100 * (ratio - 1) if isinstance(ratio, float) else ratio
    series = [
        Series(name="gain of sequence parallelism", unit="%", points=gain),
        *throughputs(found[False]),
        *throughputs(found[True], prefix="with it "),
    ]
    return Result(series=tuple(series), notes=tuple(notes(machine, found[False])))
