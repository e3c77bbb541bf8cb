"""Families of graphs: parameters as published, formulas by hand, backward passes, budgets by position."""

from collections import Counter

import pytest

from solvers.check.recompute_graph.judge import judge_recompute_graph
from solvers.ir import RecomputeGraphProblem, RecomputeOp
from solvers.recompute.graph.instances import (
    FAMILIES,
    at_position,
    mobilenet,
    peak_bytes,
    random_layered,
    resnet,
    unet,
    vgg16,
)
from solvers.recompute.graph.least import least_budget_bytes
from solvers.recompute.graph.networks import STATE_BYTES, Network
from solvers.recompute.graph.replay import instance, plan_from_recomputations


@pytest.mark.parametrize(
    ("problem", "published", "biases"),
    [
        (vgg16(), 138_357_544, 4_224 + 9_192),
        (resnet(), 25_557_032, 1_000),
        (resnet(blocks=(3, 4, 23, 3)), 44_549_160, 1_000),
        (mobilenet(), 3_504_872, 1_000),
        (unet(), 31_031_810, 1_920 + 2_048 + 960 + 1_920 + 2),
    ],
    ids=lambda value: value.name if isinstance(value, RecomputeGraphProblem) else "",
)
def test_parameters_are_exactly_the_published_ones_without_biases(
    problem: RecomputeGraphProblem, published: int, biases: int
) -> None:
    """States are 12 bytes a parameter; norms count."""
    assert problem.static_bytes == STATE_BYTES * (published - biases)


def test_networks_are_built_as_published() -> None:
    """Operators of the forward pass by kind, told by what their names begin with."""
    kinds = {problem.name: _forward_kinds(problem) for problem in (vgg16(), unet(), resnet(), mobilenet())}
    assert kinds == {
        "vgg16-b64": {"conv": 13, "relu": 15, "pool": 5, "linear": 3},
        "unet-b8": {"conv": 19, "relu": 18, "pool": 4, "up": 4, "concat": 4},
        "resnet50-b64": {"conv": 53, "norm": 53, "relu": 49, "pool": 2, "add": 16, "linear": 1},
        "mobilenet-v2-b64": {"conv": 52, "norm": 52, "relu": 35, "pool": 1, "add": 10, "linear": 1},
    }


def _forward_kinds(problem: RecomputeGraphProblem) -> Counter[str]:
    names = [op.name for op in problem.ops]
    return Counter(name.rstrip("0123456789") for name in names[: names.index("loss")])


def test_outputs_halve_where_strides_say_so() -> None:
    """The last maps of a batch of one: ResNet-50 and MobileNet-V2 reach 7 x 7, VGG-16 too; U-Net comes back to 416."""
    assert _bytes(resnet(batch=1), "pool", 1) == 4 * 2048
    assert _bytes(mobilenet(batch=1), "conv", 51) == 4 * 1280 * 7 * 7
    assert _bytes(vgg16(batch=1), "pool", 4) == 4 * 512 * 7 * 7
    assert _bytes(unet(batch=1), "pool", 3) == 4 * 512 * 26 * 26
    assert _bytes(unet(batch=1), "conv", 18) == 4 * 2 * 416 * 416
    assert _bytes(resnet(batch=1), "conv", 0) == 4 * 64 * 112 * 112
    assert _bytes(resnet(batch=1), "add", 3) == 4 * 512 * 28 * 28


def _bytes(problem: RecomputeGraphProblem, kind: str, number: int) -> int:
    """Bytes of the number-th operator of a kind."""
    return [op for op in problem.ops if op.name.rstrip("0123456789") == kind][number].output_bytes


@pytest.mark.parametrize(("position", "budget"), [(0.0, 9), (0.5, 11), (0.65, 12), (1.0, 13)])
def test_positions_lie_between_the_least_budget_and_the_peak(position: float, budget: int) -> None:
    """Op 3 needs its 2 bytes, op 2's 6 and 1 static; ops 0 and 1, 2 bytes each, wait for the end beside them."""
    ops = [RecomputeOp(name="a", time_us=1, output_bytes=size, inputs=read, comm=False) for size, read in CHAIN]
    problem = RecomputeGraphProblem(name="chain", budget_bytes=0, static_bytes=1, ops=tuple(ops))
    assert (least_budget_bytes(problem), peak_bytes(problem)) == (9, 13)
    assert at_position(problem, position).budget_bytes == budget


CHAIN: list[tuple[int, tuple[int, ...]]] = [(2, ()), (2, (0,)), (6, (1,)), (2, (2,)), (1, (3,)), (1, (0, 1))]


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
