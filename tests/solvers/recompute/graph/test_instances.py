"""Families of graphs: parameters as published, formulas by hand, backward passes, budgets by position."""

import pytest

from solvers.check.recompute_graph.judge import judge_recompute_graph
from solvers.recompute.graph.instances import FAMILIES, at_position, peak_bytes, random_layered, resnet, vgg16
from solvers.recompute.graph.least import least_budget_bytes
from solvers.recompute.graph.networks import STATE_BYTES, Network
from solvers.recompute.graph.replay import instance, plan_from_recomputations


def test_parameters_are_those_of_the_papers() -> None:
    """VGG-16: 138 M; ResNet-50: 25.5 M (biases left out, norms counted)."""
    assert vgg16().static_bytes / STATE_BYTES == pytest.approx(138.3e6, rel=0.002)
    assert resnet().static_bytes / STATE_BYTES == pytest.approx(25.5e6, rel=0.01)


def test_a_convolutions_formulas() -> None:
    """3×3 from 64 to 128 channels at stride 2 on 10×9, batch 2: 73,728 weights, 5×5 positions, 2·73,728·25·2 FLOPs.

    At 62.4 TFLOP/s these are 0.118 us; its bytes (2·64·90 + 2·128·25 + 73,728)·4 at 1.3 TB/s are 0.282 us: the slower.
    """
    net = Network(batch=2)
    image = net.image(64, 10)
    narrow = net.convolution(type(image)(None, 64, 10, 9), 128, stride=2)
    assert net.parameters == 73_728
    assert (narrow.channels, narrow.height, narrow.width) == (128, 5, 5)
    assert net.forward[0].time_us == pytest.approx(5 + 0.2820, abs=1e-3)
    assert net.forward[0].backward_us == pytest.approx(5 + 2 * 0.2820, abs=2e-3)


def test_a_residual_block_backward() -> None:
    """conv, relu, add; then the loss, and backward: the sum has no op of its own, relu's gradient meets the skip's."""
    net = Network(batch=1)
    x = net.convolution(net.image(1, 8), 1)
    net.add(x, net.relu(x))
    ops = net.training()
    assert [op.name for op in ops] == ["conv0", "relu1", "add2", "loss", "relu1_back", "conv0_sum", "conv0_back"]
    assert [op.inputs for op in ops] == [(), (0,), (0, 1), (2,), (1, 3), (3, 4), (5,)]
    assert ops[6].output_bytes == 0  # gradients of parameters are static
    launches = 7 * 5  # each op launches a kernel; what it moves is far below a microsecond
    assert sum(op.time_us for op in ops) == launches


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_training_graphs_with_a_budget_between_the_least_and_the_peak(name: str) -> None:
    problem = FAMILIES[name]()
    least, most = least_budget_bytes(problem), peak_bytes(problem)
    assert least < problem.budget_bytes < most
    loose = at_position(problem, 1.0)
    everything = plan_from_recomputations(loose, [()] * len(problem.ops))
    assert judge_recompute_graph(loose, everything).objective_us == instance(problem).base
    assert not judge_recompute_graph(at_position(problem, 0.99), everything).clean


def test_random_layered_graphs_are_what_was_asked_for() -> None:
    problem = random_layered(1000, width=6, comm=0.2, seed=3)
    assert len(problem.ops) == 1000
    assert 130 < sum(op.comm for op in problem.ops) < 270
    assert problem == random_layered(1000, width=6, comm=0.2, seed=3)
