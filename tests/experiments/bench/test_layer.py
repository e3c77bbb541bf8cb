"""The section `layer`: what is searched, and its times as figures."""

from typing import Any

import pytest
from msgspec.structs import replace

from experiments.bench import layer
from experiments.bench.layer import ENTRY, layer_figures
from experiments.lynx.search import Searched, search_heu, search_partition
from experiments.reproduction.entry import Entry, read_entry
from solvers.ir import PartitionPlan, Solution, Status
from solvers.partition.pipeline import Pipeline

CUT = {"tensor": 2, "pipeline": 3}
NONE: Solution[Any] = Solution(status=Status.INFEASIBLE, plan=None, solver="s", reason="no")


@pytest.fixture
def one_model(monkeypatch: pytest.MonkeyPatch) -> Entry:
    """The entry with one small model instead of seven."""
    entry = read_entry(ENTRY)
    small = replace(entry, parameters={**entry.parameters, "splits": {"gpt-300m": CUT}})
    monkeypatch.setattr(layer, "read_entry", lambda name: {ENTRY: small}[name])
    return small


def found(plan: PartitionPlan | None) -> Solution[Any]:
    return NONE if plan is None else Solution(status=Status.FEASIBLE, plan=plan, solver="s", objective=9)


@pytest.mark.parametrize(("layers", "told"), [((9, 8, 7), "layers 9-8-7"), (None, "no partition")])
def test_times_are_milliseconds_over_their_goals(
    one_model: Entry, monkeypatch: pytest.MonkeyPatch, layers: tuple[int, ...] | None, told: str
) -> None:
    """HEU in 25 ms of the goal of 50 (20 ms of the processor), the partition in 1.5 s of the goal of one."""
    plan = None if layers is None else PartitionPlan(layers=layers)
    asked = []

    def search(how: object, pipeline: Pipeline, runs: int) -> Searched:
        asked.append((how, pipeline.parallelism.pipeline, runs))
        return Searched(found(plan), 0.025, 0.020) if how is search_heu else Searched(found(plan), 1.5, 1.25)

    monkeypatch.setattr(layer, "searched", search)
    heu, both = layer_figures(7)
    assert asked == [(search_heu, 3, 7), (search_partition, 3, 7)]
    assert (heu.name, heu.value, heu.unit) == ("heu, gpt-300m", 25, "ms")
    assert (heu.ratio, heu.ratio_to) == (0.5, "goal of 50 ms")
    status = "infeasible" if layers is None else "feasible"
    assert heu.how == f"tp 2, 3 stages, {status}; processor time 20 ms"
    assert (both.name, both.value, both.unit) == ("heu and partition, gpt-300m", 1500, "ms")
    assert (both.ratio, both.ratio_to) == (1.5, "goal of 1000 ms")
    assert both.how == f"tp 2, 3 stages, {told}; processor time 1.25e+03 ms"


def test_the_stages_have_the_memory_that_the_entry_gives(one_model: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget of the pipeline is the cluster's and the entry's, at whose share a plan must recompute."""
    seen: list[Pipeline] = []

    def search(how: object, pipeline: Pipeline, runs: int) -> Searched:
        seen.append(pipeline)
        return Searched(NONE, 1, 1)

    monkeypatch.setattr(layer, "searched", search)
    layer_figures(1)
    answer = search_heu(seen[0])
    assert answer.objective is not None and answer.objective > 0
    assert seen[0].parallelism.microbatch == one_model.parameters["microbatch"]


def test_every_shape_of_the_papers_figure_is_searched() -> None:
    figures = layer_figures(runs=1)
    models = ["gpt-1.3b", "gpt-4.7b", "gpt-7b", "gpt-13b", "gpt-20b", "gpt-23b", "gpt-175b"]
    assert [figure.name for figure in figures[::2]] == [f"heu, {model}" for model in models]
    assert [figure.name for figure in figures[1::2]] == [f"heu and partition, {model}" for model in models]
    assert all(figure.value and "no partition" not in figure.how for figure in figures)
    layers = figures[-1].how.partition("layers ")[2].partition(";")[0]
    assert sum(map(int, layers.split("-"))) == 96
