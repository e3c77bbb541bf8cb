"""A session's measured graph: the same layer problem as the tapes give, and a step that graph solvers plan."""

import math
from collections.abc import Iterator

import pytest
import torch

from experiments.hardware import read_hardware
from experiments.models.gpt import Gpt, GptShape
from runtime.device import use_sim
from runtime.recompute import RecomputeSession, plan
from solvers.ir.codec import document_from_raw, document_to_raw
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.recompute import RecomputeLayerProblem
from solvers.ir.solution import Limits, Status
from solvers.planner import make_problem, planner

HARDWARE = read_hardware("sim-small")


def trained(dropout: float) -> RecomputeSession:
    """A session after two steps of a small GPT whose kernels take longer than their launches."""
    use_sim("conf/hardware/sim-small.json", capacity_bytes=1 << 31)
    device = torch.device("sim:0")
    torch.manual_seed(0)
    model = Gpt(GptShape(layers=3, width=256, heads=4, context=256, batch=8, dropout=dropout)).to(device)
    words = torch.zeros(8, 256, dtype=torch.int64, device=device)
    session = plan(model, budget="90%")
    with session:
        for _ in range(2):
            model(words, words).backward()
    return session


@pytest.fixture(scope="module")
def session() -> Iterator[RecomputeSession]:
    yield trained(dropout=0.0)
    use_sim()


def test_the_graph_holds_each_block_forwards_then_backwards(session: RecomputeSession) -> None:
    graph = session.graph("three blocks")
    assert graph.layer_of_op is not None
    forward = [layer for op, layer in zip(graph.ops, graph.layer_of_op, strict=True) if op.phase == "forward"]
    backward = [layer for op, layer in zip(graph.ops, graph.layer_of_op, strict=True) if op.phase == "backward"]
    assert list(dict.fromkeys(layer for layer in forward if layer is not None)) == [0, 1, 2]
    assert backward == [2, 2, 1, 1, 0, 0]  # the pass, and the gradient that it hands on
    assert graph.replays_from == len(graph.ops) - len(backward)
    fixed = {op.name for op in graph.ops if op.replay is False}
    assert fixed == {
        "input", "output", "beside the forward pass", "beside the loss", "loss", "backward, part 1", "backward, end"
    }  # fmt: skip
    assert document_from_raw(document_to_raw(graph), OpGraph, "the graph") == graph
    assert "tapes of 3 blocks on sim:0" in graph.source


def test_its_layer_problem_is_the_sessions_own(session: RecomputeSession) -> None:
    """Two ways from the tape to the problem: by `Layer.problem`, and by the graph and the solvers' own reader."""
    own = session.problem
    made = make_problem("recompute-layer", session.graph(), HARDWARE, 1 << 30)
    assert isinstance(made, RecomputeLayerProblem) and isinstance(own, RecomputeLayerProblem)
    assert [op.name for op in made.ops][: len(own.ops)] == [op.name for op in own.ops][: len(made.ops)]
    pairs = list(zip(made.ops, own.ops, strict=False))
    assert len(pairs) >= 9
    for ours, theirs in pairs:
        assert (ours.output_bytes, ours.inputs, ours.comm, ours.needed) == (
            theirs.output_bytes,
            theirs.inputs,
            theirs.comm,
            theirs.needed,
        )
        assert abs(ours.time_us - theirs.time_us) <= 1  # rounded cumulatively there, up here
    assert made.layer_input_bytes == own.layer_input_bytes


def test_graph_solvers_plan_it(session: RecomputeSession) -> None:
    graph = session.graph()
    limits = Limits(time_s=math.inf, work=2.0)
    solution = planner("opt", limits=limits)(graph, HARDWARE, "70%")
    assert solution.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert solution.plan is not None and any(action.do == "recompute" for action in solution.plan.actions)
    assert solution.objective is not None and solution.base is not None and solution.objective > solution.base


def test_dropout_is_two_results_of_one_operator() -> None:
    """Autograd saves the mask; the result is read by the sum after it only."""
    layer = trained(dropout=0.1).layers[0]
    drops = [unit for unit in layer.units if "dropout" in unit.name]
    assert [unit.saved for unit in drops] == [True, False] * (len(drops) // 2)
    assert drops[0].nodes == drops[1].nodes
    assert drops[1].bytes == 4 * drops[0].bytes  # float32 beside a byte
    use_sim()


def test_nothing_is_measured_before_the_first_step() -> None:
    use_sim()
    model = Gpt(GptShape(layers=2)).to("sim:0")
    with pytest.raises(InvalidInput, match="nothing is measured yet: train one step"):
        plan(model, budget="1GiB").graph()
