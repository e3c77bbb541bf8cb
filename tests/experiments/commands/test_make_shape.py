"""`bayplan make --shape`: problems from a model's shape, cut over a cluster."""

from pathlib import Path

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import SHIPPED
from solvers.ir import OpGraph, PartitionProblem, RecomputeLayerProblem, SwapProblem
from solvers.ir.codec import read_document, read_problem
from tests.experiments.commands.console import Outcome, call, refused, write_graph


def make(out: Path, kind: str, *arguments: object, hardware: str = "lynx-nvlink", shape: str = "gpt-300m") -> Outcome:
    return call("make", kind, "--shape", shape, "--hardware", hardware, "--out", out, *arguments)


def test_the_graph_of_a_whole_model(tmp_path: Path) -> None:
    out = tmp_path / "g.json"
    made = make(out, "graph", "--tensor", 2, "--microbatch", 32)
    assert (made.code, made.err) == (0, "")
    graph = read_document(out, OpGraph)
    assert len(graph.ops) == 24 * 30 + 4 and made.figure("ops") == "724"
    assert made.figure("peak of the graph").startswith(f"{max(graph.memory_bytes)} bytes")


def test_ungrouped_and_fewer_layers_and_another_sequence(tmp_path: Path) -> None:
    out = tmp_path / "g.json"
    assert make(out, "graph", "--microbatch", 4, "--layers", 2, "--sequence", 512, "--ungrouped").code == 0
    graph = read_document(out, OpGraph)
    assert len(graph.ops) == 2 * (19 + 27) + 4  # one device: no collectives
    assert graph.tensor("layer 0 qkv matmul").bytes == 2 * 3 * 4 * 512 * 1024


def test_a_layer_problem_counts_all_microbatches_in_flight(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    cut = ["--tensor", 4, "--pipeline", 4, "--microbatch", 8, "--microbatches", 16, "--stage", 1]
    made = make(out, "recompute-layer", *cut, "--stall-us", 50, "--budget", "50%", shape="gpt-7b")
    assert (made.code, made.err) == (0, "")
    problem, _ = read_problem(out)
    assert isinstance(problem, RecomputeLayerProblem)
    assert (problem.layers, problem.inflight_microbatches, problem.last_stage) == (8, 3, False)
    assert [window.phase for window in problem.windows] == ["forward", "forward", "backward", "backward", "stall"]
    kept = problem.layer_input_bytes + sum(op.output_bytes for op in problem.ops if op.needed)
    unlimited = problem.static_bytes + 3 * 8 * kept
    assert problem.budget_bytes == unlimited // 2
    assert made.figure("memory where nothing is recomputed").startswith(f"{unlimited} bytes")


def test_embedding_and_head_are_fixed_memory_of_the_outer_stages(tmp_path: Path) -> None:
    """The last stage of 1.3B keeps its logits: 4sbh + 4sbv/t more than a middle one, and the copied word table."""
    static = []
    for stage in (2, 3):
        out = tmp_path / f"{stage}.json"
        cut = ["--tensor", 4, "--pipeline", 4, "--microbatch", 2, "--stage", stage]
        assert make(out, "recompute-layer", *cut, shape="gpt-1.3b").code == 0
        problem, _ = read_problem(out)
        assert isinstance(problem, RecomputeLayerProblem)
        assert problem.budget_bytes == 40 << 30
        static.append(problem.static_bytes)
    table, norm, tokens = 51200 * 2048 // 4, 2 * 2048, 2 * 1024
    assert static[1] - static[0] == 16 * (table + norm) + 4 * tokens * 2048 + 4 * tokens * 51200 // 4


def test_layers_left_over_go_to_the_first_stages(tmp_path: Path) -> None:
    layers = []
    for stage in range(4):
        out = tmp_path / "p.json"
        cut = ["--tensor", 4, "--pipeline", 4, "--microbatch", 1, "--stage", stage]
        assert make(out, "recompute-layer", *cut, shape="gpt-23b").code == 0
        problem, _ = read_problem(out)
        assert isinstance(problem, RecomputeLayerProblem)
        layers.append(problem.layers)
    assert layers == [13, 13, 12, 12]


def test_a_swap_problem_of_a_computed_graph(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    assert make(out, "swap", "--microbatch", 2, "--layers", 3, "--budget", "60%", hardware="rtx-3090").code == 0
    problem, _ = read_problem(out)
    assert isinstance(problem, SwapProblem)
    assert problem.tensors and problem.link.out_bytes_per_s == read_hardware("rtx-3090").links[0].bytes_per_s


def test_a_partition_problem_has_heus_costs_of_every_stage_and_layer_count(tmp_path: Path) -> None:
    """Earlier stages hold more microbatches, so they recompute more; what fits no stage is null."""
    out, plan = tmp_path / "p.json", tmp_path / "plan.json"
    cut = ["--tensor", 4, "--pipeline", 4, "--microbatch", 32, "--microbatches", 16]
    assert make(out, "partition", *cut, shape="gpt-13b").code == 0
    problem, _ = read_problem(out)
    assert isinstance(problem, PartitionProblem)
    assert (problem.stages, problem.layers) == (4, 40)
    first, last = problem.cost_us[0], problem.cost_us[3]
    assert first[37] is None and last[1] is not None
    costs = [cost for cost in problem.cost_us[1][1:] if cost is not None]
    assert costs == sorted(set(costs))  # the more layers, the slower
    of_ten = [row[10] or 0 for row in problem.cost_us[:3]]
    assert of_ten == sorted(of_ten, reverse=True) and of_ten[2] > 0
    solved = call("solve", out, "--solver", "dp", "--out", plan)
    assert (solved.code, call("check", out, plan).code) == (0, 0)
    starved = make(out, "partition", *cut, "--budget", "1B", shape="gpt-13b")
    assert starved.code == 0 and call("solve", out, "--solver", "dp").code == 1
    half = make(out, "partition", *cut, "--budget", "50%", shape="gpt-13b")
    peak, budget = half.figure("fullest stage where nothing is recomputed"), half.figure("budget")
    assert int(budget.split()[0]) == int(peak.split()[0]) // 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["graph"], "--shape needs --microbatch"),
        (["graph", "--microbatch", 1, "--tensor", 3], "tensor is 3, which does not divide the 16 heads of gpt-300m"),
        (["graph", "--microbatch", 1, "--tensor", 16, "--sequence", 1000, "--sequence-parallel"], "1000 sequence"),
        (["graph", "--microbatch", 1, "--stage", 1], "stage is 1, but the pipeline has 1 stage: choose 0"),
        (["recompute-layer", "--microbatch", 1, "--pipeline", 30, "--stage", 25], "too few for 30 stages"),
        (["graph", "--microbatch", 1, "--layers", 25], "layers is 25, but of the 24 layers of gpt-300m"),
        (["partition", "--microbatch", 1, "--stage", 0], "--stage means nothing to a partition"),
        (["partition", "--microbatch", 1, "--pipeline", 25], "too few for 25 stages"),
        (["recompute-layer", "--microbatch", 10**9, "--sequence", 10**6], "or the samples and tokens"),
        (["graph", "--microbatch", 10**9, "--sequence", 10**6], "the graph: "),
        (["graf", "--microbatch", 1], "there is no kind 'graf'"),
    ],
)
def test_cuts_that_mean_nothing(tmp_path: Path, arguments: list[object], says: str) -> None:
    out = tmp_path / "p.json"
    assert says in refused(make(out, str(arguments[0]), *arguments[1:]))
    assert not out.exists()


def test_a_graph_or_a_shape_but_not_both(tmp_path: Path) -> None:
    graph, out = write_graph(tmp_path / "g.json"), tmp_path / "p.json"
    either = "give either --graph G.json or --shape NAME"
    rest = ["--hardware", "sim-small", "--out", out]
    assert either in refused(call("make", "swap", *rest))
    assert either in refused(call("make", "swap", "--graph", graph, "--shape", "gpt-7b", *rest))
    said = refused(call("make", "swap", "--graph", graph, "--sequence-parallel", *rest))
    assert said.startswith("--sequence-parallel says how a --shape is cut, but --graph is a measured step")
    assert "is a graph already" in refused(call("make", "graph", "--graph", graph, *rest))
    copy = tmp_path / "s.json"
    copy.write_text((SHIPPED / "gpt-300m.json").read_text())
    assert "would write over the input" in refused(make(copy, "graph", "--microbatch", 1, shape=str(copy)))
    assert make(out, "graph", "--microbatch", 1, shape=str(copy)).code == 0


def test_shapes_that_are_not_there_or_not_shapes(tmp_path: Path) -> None:
    out = tmp_path / "g.json"
    assert "did you mean 'gpt-7b'?" in refused(make(out, "graph", "--microbatch", 1, shape="gpt7b"))
    graph = write_graph(tmp_path / "h.json")
    assert "'bayplan-shape/1' is expected here" in refused(make(out, "graph", "--microbatch", 1, shape=str(graph)))
