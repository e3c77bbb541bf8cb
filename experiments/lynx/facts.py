"""What the Lynx paper states about memory (§1, §2.1), from formulas, and its own values against each other."""

from collections.abc import Mapping, Sequence

from experiments.reproduction import Cells, Result, Series, scalar
from solvers.ir.hardware import Hardware
from solvers.workload import ModelShape, Parallelism, inflight, megatron_layer, stage_extras, static_bytes
from solvers.workload.stage import BYTES_PER_PARAMETER

GB = 1e9
HOUR_S = 3600.0


def memory(cells: Cells, *, model: str, cluster: str, tensor: int, batches: Sequence[int]) -> Result:
    """States and activations of a model on one device of a tensor-parallel group, nothing recomputed (§2.1)."""
    shape, machine = cells.shape(model), cells.hardware(cluster)
    parallelism = {batch: Parallelism(tensor=tensor, microbatch=batch) for batch in batches}
    states = static_bytes(shape, parallelism[batches[0]], 0, shape.layers)
    kept = {batch: stage_activation_bytes(shape, parallelism[batch], machine, 0, shape.layers) for batch in batches}
    growth = (states + kept[batches[1]]) / (states + kept[batches[0]]) - 1
    whole = static_bytes(shape, Parallelism(microbatch=1), 0, shape.layers)
    return Result(
        series=(
            scalar("bytes per parameter", "bytes", whole / shape.parameters()),
            scalar("model states", "GB", states / GB),
            Series(name="activations", unit="GB", points={f"batch {size}": kept[size] / GB for size in batches}),
            scalar("growth of memory", "%", 100 * growth),
        ),
        notes=(f"{shape.name}: {shape.parameters():,} parameters; {shape.source}",),
    )


def stage_activation_bytes(
    shape: ModelShape, parallelism: Parallelism, machine: Hardware, stage: int, layers: int
) -> int:
    """What a stage keeps of one microbatch where nothing is recomputed: its layers', and embedding or head."""
    extras = stage_extras(shape, parallelism, machine, stage)
    layer = megatron_layer(shape, parallelism, machine)
    return layers * layer.kept_bytes + sum(extra.activation_bytes for extra in extras)


def out_of_memory(
    cells: Cells,
    *,
    model: str,
    cluster: str,
    batch: int,
    splits: Sequence[Mapping[str, int]],
    microbatches: Sequence[int],
) -> Result:
    """What the first stage needs for a batch, by split and number of microbatches, nothing recomputed (§1)."""
    shape, machine = cells.shape(model), cells.hardware(cluster)
    needs: dict[str, int] = {}
    for split in splits:
        for count in microbatches:
            parallelism = _cut(split, batch // count, count)
            label = f"tp {parallelism.tensor} pp {parallelism.pipeline} microbatches {count}"
            needs[label] = first_stage_bytes(shape, parallelism, machine)
    device = machine.devices[0].memory_bytes
    return Result(
        series=(
            Series(name="need of the first stage", unit="GB", points={key: value / GB for key, value in needs.items()}),
            Series(name="need over memory", unit="x", points={key: value / device for key, value in needs.items()}),
        )
    )


def _cut(split: Mapping[str, int], microbatch: int, microbatches: int) -> Parallelism:
    tensor, pipeline = split["tensor"], split["pipeline"]
    return Parallelism(tensor=tensor, pipeline=pipeline, microbatch=microbatch, microbatches=microbatches)


def first_stage_bytes(shape: ModelShape, parallelism: Parallelism, machine: Hardware) -> int:
    """Static memory and the activations in flight of a first stage with its even share of the layers."""
    layers = -(-shape.layers // parallelism.pipeline)
    kept = stage_activation_bytes(shape, parallelism, machine, 0, layers)
    return static_bytes(shape, parallelism, 0, layers) + inflight(parallelism, 0) * kept


def consistency(
    cells: Cells,
    *,
    opt_search_h: float,
    heu_search_s: float,
    all_over_full_most: float,
    partition_gain_23b_least: float,
    parameters_e9: float,
    tensor: int,
    memory_states_gb: float,
    memory_activations_gb: float,
) -> Result:
    """What follows from the paper's own values."""
    before = memory_states_gb + memory_activations_gb
    growth = memory_activations_gb / before
    states = BYTES_PER_PARAMETER * parameters_e9 / tensor
    return Result(
        series=(
            scalar("reduction of search time", "%", 100 * (1 - heu_search_s / (opt_search_h * HOUR_S))),
            scalar("gain left to recomputation", "x", all_over_full_most / partition_gain_23b_least),
            scalar("growth of memory", "%", 100 * growth),
            scalar("model states", "GB", states),
        )
    )
