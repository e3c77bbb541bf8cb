"""HEU's policies as plans of a whole graph: valid by the judge, and no faster than OPT."""

import math
from pathlib import Path

import msgspec
import pytest

from experiments.hardware import read_hardware
from experiments.lynx import optimum
from experiments.lynx.optimum import figure_14, solve_heu
from experiments.lynx.single_policy import LayeredGraph, best_single_policy
from experiments.reproduction import Cells
from experiments.shapes import read_shape
from solvers.check import check_plan
from solvers.ir import InvalidInput
from solvers.ir.codec import plan_file, problem_to_raw, write_json
from solvers.ir.recompute import RecomputeGraphProblem, RecomputeOp
from solvers.ir.solution import Limits, Solution, Status
from solvers.recompute.graph.instances import at_position
from solvers.recompute.graph.make import graph_problem
from solvers.recompute.layer import Heu, Policy
from solvers.workload import Parallelism, embedding_extra, head_extra, megatron_layer, stage_graph


def gpt(layers: int, position: float) -> RecomputeGraphProblem:
    """A GPT-300M with few layers, its budget between the least (0) and what it needs without recomputation (1)."""
    shape, machine, cut = read_shape("gpt-300m"), read_hardware("lynx-nvlink"), Parallelism(tensor=2, microbatch=32)
    costs = megatron_layer(shape, cut, machine)
    embedding, head = embedding_extra(shape, cut, machine), head_extra(shape, cut, machine)
    graph = stage_graph(costs, layers, embedding=embedding, head=head)
    return at_position(graph_problem(graph, 2**50, 0), position)


@pytest.fixture(scope="module")
def graph() -> LayeredGraph:
    return LayeredGraph.of(gpt(3, 0.4))


def test_layers_and_their_communications_are_found(graph: LayeredGraph) -> None:
    assert (graph.layers.count, graph.layers.size) == (3, 16)
    assert list(graph.begins) == sorted(graph.begins, reverse=True)
    assert [len(windows) for windows in graph.windows] == [2, 2, 2]
    names = [[graph.problem.ops[t].name for t in windows] for windows in graph.windows]
    assert all(name.startswith(f"layer {layer} all-reduce") for layer, own in enumerate(names) for name in own)


def test_the_layer_is_the_one_of_the_workload(graph: LayeredGraph) -> None:
    shape, machine = read_shape("gpt-300m"), read_hardware("lynx-nvlink")
    costs, found = megatron_layer(shape, Parallelism(tensor=2, microbatch=32), machine), graph.layer_problem()
    assert [op.output_bytes for op in found.ops] == [op.output_bytes for op in costs.forward]
    assert [op.time_us for op in found.ops] == [op.time_us for op in costs.forward]
    assert tuple(op.needed for op in found.ops) == costs.needed
    assert tuple(op.inputs for op in found.ops) == tuple(op.inputs for op in costs.forward)
    assert [window.time_us for window in found.windows] == [op.time_us for op in costs.backward if op.comm]


def test_hidden_work_stands_in_the_layer_above(graph: LayeredGraph) -> None:
    names = [op.name for op in graph.layer_problem().ops]
    scores, softmax = names.index("layer 1 scores"), names.index("layer 1 softmax")
    again = graph.recomputations(Policy(stored=(), recomputed=((scores, 0), (softmax, 2))))
    where = {i: t for t, ops in enumerate(again) for i in ops}
    below, top = graph.layers.op(0, scores), graph.layers.op(2, scores)
    assert where[below] == graph.windows[1][0]
    assert graph.given.comm[where[below]] and not graph.given.comm[where[top]]
    late = where[graph.layers.op(0, softmax)]
    assert late >= graph.begins[0] and not graph.given.comm[late]


def test_the_best_policy_is_a_valid_plan(graph: LayeredGraph) -> None:
    best = best_single_policy(graph)
    assert best is not None and best.replayed.violation is None
    problem, objective = graph.problem, best.replayed.objective_us
    assert graph.given.base < objective
    solution = Solution(status=Status.FEASIBLE, plan=best.plan(graph.given), objective=objective, solver="heu")
    verdict = check_plan(problem, plan_file(solution, problem.KIND, None))
    assert verdict.clean and verdict.objective_us == objective


def test_more_memory_never_slows_it_down() -> None:
    times = []
    for position in (0.2, 0.5, 1.0):
        best = best_single_policy(LayeredGraph.of(gpt(3, position)))
        assert best is not None
        times.append(best.replayed.objective_us)
    assert times[0] >= times[1] >= times[2]
    assert best_single_policy(LayeredGraph.of(gpt(3, 0.0))) is None


def test_enough_memory_needs_no_recomputation() -> None:
    roomy = gpt(3, 1.0)
    graph = LayeredGraph.of(msgspec.structs.replace(roomy, budget_bytes=2 * roomy.budget_bytes))
    assert Heu().solve(graph.layer_problem(), Limits()).objective == 0


def test_a_graph_without_layers_is_refused() -> None:
    ops = [
        RecomputeOp(name=str(i), time_us=1, output_bytes=7 * i + 1, inputs=() if i == 0 else (i - 1,), comm=False)
        for i in range(6)
    ]
    problem = RecomputeGraphProblem(name="chain", budget_bytes=100, static_bytes=0, ops=tuple(ops))
    with pytest.raises(InvalidInput, match="chain repeats no layers"):
        LayeredGraph.of(problem)


def test_figure_14_stands_beside_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "ROOT", tmp_path)
    monkeypatch.setattr(optimum, "Limits", lambda **_: Limits(time_s=math.inf, work=0.5))  # seconds differ in worth
    for position in (0.4, 0.7):
        write_json(tmp_path / f"tiny-{position}.json", problem_to_raw(gpt(2, position)))
    cells = Cells(tmp_path / "cells")
    result = figure_14(cells, instances="tiny-*.json", time_limit_s=4.0, checkmate_limit_s=2.0, threads=1)
    assert [cell.failure for cell in cells.done] == [None] * 6
    labels = ["tiny-0.4", "tiny-0.7"]
    for name in ("heu of opt", "opt of opt", "heu of bound", "opt gap", "opt overhead gap", "heu search time"):
        assert list(result.named(name).numbers()) == labels
    for label in labels:
        assert result.named("opt of opt").points[label] == 100
        of_bound, of_opt = result.named("heu of bound").numbers()[label], result.named("heu of opt").numbers()[label]
        assert of_bound <= of_opt <= 100.0001
        checkmate = result.named("checkmate of opt").numbers().get(label, 0.0)
        assert checkmate <= 100.0001


def test_heus_search_is_its_own(tmp_path: Path) -> None:
    write_json(tmp_path / "one.json", problem_to_raw(gpt(2, 0.5)))
    found = solve_heu(tmp_path / "one.json")
    assert 0 < found["search_s"] < 60


def test_no_instance_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "ROOT", tmp_path)
    with pytest.raises(InvalidInput, match=r"no file matches none-\*\.json"):
        figure_14(Cells(tmp_path), instances="none-*.json", time_limit_s=1.0, checkmate_limit_s=1.0, threads=1)
