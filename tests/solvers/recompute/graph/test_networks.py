"""Each operator's formulas by hand: parameters, FLOPs or bytes, what its backward pass reads; sums of gradients."""

from collections.abc import Callable

import pytest

from solvers.recompute.graph.networks import Map, Network

FLOPS, BYTES, LAUNCH = 62.4e6, 1.3e6, 5.0
"""An assumed A100, per microsecond; a launch takes 5 us."""
X = Map(None, 8, 6, 5)
"""A batch of two of them has 480 numbers."""


def moved_us(numbers: int) -> float:
    return 4 * numbers / BYTES


Case = tuple[Callable[[Network], Map], tuple[int, int, int], int, int, float]
CASES: dict[str, Case] = {
    # result; parameters; numbers moved by a batch of two; backward over forward
    "convolution": (lambda net: net.convolution(X, 3), (3, 6, 5), 9 * 8 * 3, 480 + 180 + 216, 2.0),
    "strided": (lambda net: net.convolution(X, 4, kernel=1, stride=4), (4, 2, 2), 32, 480 + 32 + 32, 2.0),
    "depthwise": (lambda net: net.convolution(X, 8, kernel=5, groups=8), (8, 6, 5), 200, 480 + 480 + 200, 2.0),
    "transposed": (lambda net: net.transposed(X, 3), (3, 12, 10), 4 * 8 * 3, 480 + 720 + 96, 2.0),
    "linear": (lambda net: net.linear(X, 7), (7, 1, 1), 8 * 30 * 7, 480 + 14 + 1680, 2.0),
    "normalise": (lambda net: net.normalise(X), (8, 6, 5), 16, 3 * 480, 1.5),
    "relu": (lambda net: net.relu(X), (8, 6, 5), 0, 2 * 480, 1.5),
    "pool": (lambda net: net.pool(X), (8, 3, 3), 0, 480 + 144, 1.0),
    "pool by three": (lambda net: net.pool(X, stride=3), (8, 2, 2), 0, 480 + 64, 1.0),
    "mean": (lambda net: net.pool(X, stride=0), (8, 1, 1), 0, 480 + 16, 1.0),
    "add": (lambda net: net.add(X, X), (8, 6, 5), 0, 3 * 480, 1.0),
    "concatenate": (lambda net: net.concatenate(X, Map(None, 2, 6, 5)), (10, 6, 5), 0, 480 + 120 + 600, 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_what_small_operators_move_decides_their_time(name: str) -> None:
    """Their FLOPs are over sooner than their bytes have moved."""
    make, shape, parameters, moved, backward = CASES[name]
    net = Network(batch=2)
    result = make(net)
    assert (result.made_by, (result.channels, result.height, result.width)) == (0, shape)
    assert net.parameters == parameters
    (op,) = net.forward
    assert op.time_us == pytest.approx(LAUNCH + moved_us(moved), abs=1e-9)
    assert op.backward_us == pytest.approx(LAUNCH + backward * moved_us(moved), abs=1e-9)


@pytest.mark.parametrize(
    ("make", "flops"),
    [
        # 2 FLOPs for each weight, position of the result, and image
        (lambda net, x: net.convolution(x, 1024), 2 * 9 * 1024 * 1024 * 30 * 64),
        (lambda net, x: net.convolution(x, 1024, stride=2, groups=2), 2 * 9 * 512 * 1024 * 9 * 64),
        # of the up-convolution: position of the source
        (lambda net, x: net.transposed(x, 1024), 2 * 4 * 1024 * 1024 * 30 * 64),
    ],
)
def test_large_products_are_decided_by_their_flops(make: Callable[[Network, Map], Map], flops: int) -> None:
    net = Network(batch=64)
    make(net, Map(None, 1024, 6, 5))
    assert net.forward[0].time_us == pytest.approx(LAUNCH + flops / FLOPS)
    assert net.forward[0].backward_us == pytest.approx(LAUNCH + 2 * flops / FLOPS)


def test_a_dense_layer_of_many_images_is_decided_by_its_flops() -> None:
    net = Network(batch=4096)
    net.linear(Map(None, 4096, 1, 1), 4096)
    assert net.forward[0].time_us == pytest.approx(LAUNCH + 2 * 4096**3 / FLOPS)


@pytest.mark.parametrize(
    ("make", "saved"),
    [
        (lambda net, x: net.convolution(x, 3), (0,)),
        (lambda net, x: net.transposed(x, 3), (0,)),
        (lambda net, x: net.linear(x, 3), (0,)),
        (lambda net, x: net.normalise(x), (0,)),
        (lambda net, x: net.relu(x), (1,)),
        (lambda net, x: net.pool(x), (0, 1)),
        (lambda net, x: net.pool(x, stride=0), ()),
    ],
    ids=["convolution", "transposed", "linear", "normalise", "relu", "pool", "mean"],
)
def test_backward_passes_read_their_input_or_output_as_published(
    make: Callable[[Network, Map], Map], saved: tuple[int, ...]
) -> None:
    """Forward op 0 makes the input; the operator is op 1, its backward pass op 3, behind the loss."""
    net = Network(batch=1)
    make(net, net.convolution(net.image(2, 4), 2))
    back = net.training()[3]
    assert back.name.endswith("1_back")
    assert back.inputs == tuple(sorted({2, *saved}))


def test_outputs_are_four_bytes_a_number_and_no_gradient_of_the_batch_is_made() -> None:
    """A batch of 3 images of 2 × 4 × 4; the convolution's 5 × 2 × 2; backward makes no gradient of the image."""
    net = Network(batch=3)
    net.relu(net.convolution(net.image(2, 4), 5, stride=2))
    ops = net.training()
    assert [op.name for op in ops] == ["conv0", "relu1", "loss", "relu1_back", "conv0_back"]
    assert [op.output_bytes for op in ops] == [240, 240, 240, 240, 0]
    assert [op.inputs for op in ops] == [(), (0,), (1,), (1, 2), (3,)]
    assert not any(op.comm for op in ops)


def test_a_concatenations_gradient_is_both_sources_and_sums_move_three_maps() -> None:
    """x is read by a product and by the skip: two gradients, the product's and what holds the skip's, are summed."""
    net = Network(batch=2)
    x = net.convolution(net.image(1, 300), 64)
    y = net.concatenate(x, net.convolution(x, 64))
    net.relu(y)
    ops = net.training()
    names = [op.name for op in ops]
    assert names == [
        "conv0",
        "conv1",
        "concat2",
        "relu3",
        "loss",
        "relu3_back",
        "conv1_back",
        "conv0_sum",
        "conv0_back",
    ]
    assert ops[6].inputs == (0, 5)
    assert ops[7].inputs == (5, 6)
    numbers = 2 * 64 * 300 * 300
    assert ops[7].output_bytes == 4 * numbers
    assert ops[7].time_us == pytest.approx(LAUNCH + 3 * moved_us(numbers), abs=1)


def test_what_nothing_reads_has_no_backward_pass() -> None:
    net = Network(batch=1)
    x = net.convolution(net.image(1, 8), 1)
    net.normalise(x)
    net.relu(x)
    assert [op.name for op in net.training()] == ["conv0", "norm1", "relu2", "loss", "relu2_back", "conv0_back"]


def test_times_are_rounded_so_that_their_sum_is_right() -> None:
    """Twenty passes over 100,000 numbers take 5.615 us forward and 5.923 backward each: whole, yet not 6 each time."""
    net = Network(batch=1)
    x = net.convolution(net.image(1, 1), 1)
    x = Map(x.made_by, 100_000, 1, 1)
    for _ in range(20):
        x = net.relu(x)
    true = sum(op.time_us for op in net.forward) + sum(op.backward_us for op in net.forward) + LAUNCH
    assert sum(op.time_us for op in net.training()) == pytest.approx(true, abs=0.5)
    assert {op.time_us for op in net.training() if op.name.startswith("relu")} == {5, 6}
