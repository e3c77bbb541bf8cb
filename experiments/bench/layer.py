"""Recomputation of a layer: HEU for one stage, and HEU with the partition, for the shapes of Lynx's Figure 17."""

from typing import Any

from experiments.bench.figure import Figure
from experiments.hardware import read_hardware
from experiments.lynx.search import Searched, search_heu, search_partition, searched
from experiments.reproduction.entry import read_entry
from experiments.shapes import read_shape
from solvers.partition.pipeline import pipeline_within

ENTRY = "lynx-figure-17"
"""The entry of `conf/table` whose cluster, splits and budgets are used."""
HEU_GOAL_MS, PARTITION_GOAL_MS = 50, 1000


def layer_figures(runs: int) -> list[Figure]:
    """Median search times of `runs` runs, nothing remembered between them; the operators' times are given."""
    parameters = read_entry(ENTRY).parameters
    figures = []
    for model, split in parameters["splits"].items():
        figures += _model_figures(model, split, parameters, runs)
    return figures


def _model_figures(model: str, split: dict[str, int], parameters: dict[str, Any], runs: int) -> list[Figure]:
    machine = read_hardware(parameters["cluster"])
    pipeline = pipeline_within(read_shape(model), machine, split, parameters["microbatch"], parameters["share"])
    heu, both = searched(search_heu, pipeline, runs), searched(search_partition, pipeline, runs)
    cut = f"tp {split['tensor']}, {split['pipeline']} stages"
    plan = both.answer.plan
    told = "no partition" if plan is None else f"layers {'-'.join(map(str, plan.layers))}"
    return [
        _figure(f"heu, {model}", heu, HEU_GOAL_MS, f"{cut}, {heu.answer.status.value}"),
        _figure(f"heu and partition, {model}", both, PARTITION_GOAL_MS, f"{cut}, {told}"),
    ]


def _figure(name: str, found: Searched, goal_ms: int, about: str) -> Figure:
    spent = 1e3 * found.seconds
    how = f"{about}; processor time {1e3 * found.processor_s:.3g} ms"
    return Figure(name, spent, "ms", spent / goal_ms, f"goal of {goal_ms} ms", how)
