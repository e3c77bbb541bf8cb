"""Training graphs of well-known shapes as `recompute-graph` problems: formulas and a roofline, nothing measured."""

import random
from collections.abc import Callable

import msgspec

from solvers.ir.recompute import RecomputeGraphProblem, RecomputeOp
from solvers.recompute.graph.least import least_budget_bytes
from solvers.recompute.graph.networks import STATE_BYTES, Map, Network
from solvers.recompute.graph.replay import instance, replay


def at_position(problem: RecomputeGraphProblem, position: float) -> RecomputeGraphProblem:
    """The problem with its budget at 0 (the bound on the least budget) … 1 (the peak without recomputation)."""
    least, most = least_budget_bytes(problem), peak_bytes(problem)
    return msgspec.structs.replace(problem, budget_bytes=least + round(position * (most - least)))


def peak_bytes(problem: RecomputeGraphProblem) -> int:
    """The peak where nothing is recomputed and each output is kept from its op to its last reader."""
    return replay(instance(problem), [()] * len(problem.ops)).peak_bytes


def vgg16(batch: int = 64, size: int = 224, position: float = 0.5) -> RecomputeGraphProblem:
    """A VGG-16 (Simonyan & Zisserman 2015): a chain without skip connections."""
    net = Network(batch)
    x = net.image(3, size)
    for convolutions, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(convolutions):
            x = net.relu(net.convolution(x, channels))
        x = net.pool(x)
    for features in (4096, 4096):
        x = net.relu(net.linear(x, features))
    net.linear(x, 1000)
    return _problem(f"vgg16-b{batch}", net, position)


def unet(batch: int = 8, size: int = 416, depth: int = 4, position: float = 0.5) -> RecomputeGraphProblem:
    """A U-Net (Ronneberger et al. 2015): skip connections from each level down to the same level up."""
    net = Network(batch)

    def double(x: Map, channels: int) -> Map:
        return net.relu(net.convolution(net.relu(net.convolution(x, channels)), channels))

    x, skips = net.image(3, size), []
    for level in range(depth):
        skips.append(double(x, 64 << level))
        x = net.pool(skips[-1])
    x = double(x, 64 << depth)
    for level in reversed(range(depth)):
        x = double(net.concatenate(skips[level], net.transposed(x, 64 << level)), 64 << level)
    net.convolution(x, 2, kernel=1)
    return _problem(f"unet-b{batch}", net, position)


def resnet(
    batch: int = 64, size: int = 224, blocks: tuple[int, ...] = (3, 4, 6, 3), position: float = 0.5
) -> RecomputeGraphProblem:
    """A ResNet of bottleneck blocks (He et al. 2016); (3, 4, 6, 3) is ResNet-50, (3, 4, 23, 3) ResNet-101."""
    net = Network(batch)
    x = net.pool(net.relu(net.normalise(net.convolution(net.image(3, size), 64, kernel=7, stride=2))))
    for group, count in enumerate(blocks):
        for number in range(count):
            x = _bottleneck(net, x, 64 << group, 2 if group and number == 0 else 1)
    net.linear(net.pool(x, stride=0), 1000)
    return _problem(f"resnet{3 * sum(blocks) + 2}-b{batch}", net, position)


def _bottleneck(net: Network, x: Map, width: int, stride: int) -> Map:
    y = net.relu(net.normalise(net.convolution(x, width, kernel=1)))
    y = net.relu(net.normalise(net.convolution(y, width, stride=stride)))
    y = net.normalise(net.convolution(y, 4 * width, kernel=1))
    if x.channels != 4 * width:
        x = net.normalise(net.convolution(x, 4 * width, kernel=1, stride=stride))
    return net.relu(net.add(x, y))


def mobilenet(batch: int = 64, size: int = 224, position: float = 0.5) -> RecomputeGraphProblem:
    """A MobileNet-V2 (Sandler et al. 2018): inverted residuals, depthwise convolutions."""
    net = Network(batch)
    x = net.relu(net.normalise(net.convolution(net.image(3, size), 32, stride=2)))
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, channels, repeats, stride in stages:
        for number in range(repeats):
            x = _inverted(net, x, expansion, channels, stride if number == 0 else 1)
    x = net.relu(net.normalise(net.convolution(x, 1280, kernel=1)))
    net.linear(net.pool(x, stride=0), 1000)
    return _problem(f"mobilenet-v2-b{batch}", net, position)


def _inverted(net: Network, x: Map, expansion: int, channels: int, stride: int) -> Map:
    wide = x.channels * expansion
    y = x if expansion == 1 else net.relu(net.normalise(net.convolution(x, wide, kernel=1)))
    y = net.relu(net.normalise(net.convolution(y, wide, stride=stride, groups=wide)))
    y = net.normalise(net.convolution(y, channels, kernel=1))
    return net.add(x, y) if stride == 1 and x.channels == channels else y


def random_layered(
    ops: int = 200, width: int = 4, seed: int = 0, comm: float = 0.1, position: float = 0.5
) -> RecomputeGraphProblem:
    """A random training graph of `ops` ops (at least 4): forward layers up to `width` wide, and their mirror.

    A forward op reads one to three ops of the layers before it, mostly of the last one. Its mirror reads the mirrors of
    its readers (or the last forward op) and some of what it read. A share `comm` of the ops communicates.
    """
    source = random.Random(f"layered {ops} {width} {seed}")
    half = max(2, ops // 2)
    layer_of = _layers(source, half, width)
    inputs: list[set[int]] = [_reads(source, layer_of, i) for i in range(half)]
    readers: list[list[int]] = [[u for u in range(half) if i in inputs[u]] for i in range(half)]
    found = [_random_op(source, i, sorted(inputs[i]), comm) for i in range(half)]
    mirror: dict[int, int] = {}
    for i in reversed(range(half)):
        reads = {mirror[u] for u in readers[i]} or {half - 1}
        reads |= {j for j in (*inputs[i], i) if source.random() < 0.7}
        mirror[i] = len(found)
        found.append(_random_op(source, len(found), sorted(reads), comm))
    problem = RecomputeGraphProblem(
        name=f"layered-{len(found)}-w{width}-s{seed}", budget_bytes=0, static_bytes=0, ops=tuple(found)
    )
    return at_position(problem, position)


def _layers(source: random.Random, count: int, width: int) -> list[int]:
    layers: list[int] = []
    while len(layers) < count:
        layers += [layers[-1] + 1 if layers else 0] * source.randint(1, width)
    return layers[:count]


def _reads(source: random.Random, layer_of: list[int], i: int) -> set[int]:
    earlier = [j for j in range(i) if layer_of[j] < layer_of[i]]
    near = [j for j in earlier if layer_of[j] == layer_of[i] - 1]
    if not earlier:
        return set()
    return {source.choice(near if source.random() < 0.8 else earlier) for _ in range(source.randint(1, 3))}


def _random_op(source: random.Random, number: int, inputs: list[int], comm: float) -> RecomputeOp:
    return RecomputeOp(
        name=f"op{number}",
        time_us=source.randint(5, 200),
        output_bytes=source.randint(1, 64) << 20,
        inputs=tuple(inputs),
        comm=source.random() < comm,
    )


def wide_layers(ops: int = 250, seed: int = 0, degree: float = 2.4, position: float = 0.5) -> RecomputeGraphProblem:
    """A random layered graph as those of Moccasin's paper (Bartan et al. 2023): a forward pass, no communication.

    About the square root of `ops` layers of varying width; an op reads some ops of the layer before and, for long
    connections, of any earlier one, `degree` inputs on average. Sizes are of three kinds, times uniform.
    """
    source = random.Random(f"wide {ops} {seed} {degree}")
    width = max(2, round(ops**0.5))
    layer_of: list[int] = []
    while len(layer_of) < ops:
        layer_of += [layer_of[-1] + 1 if layer_of else 0] * max(1, round(source.gauss(width, width / 4)))
    layer_of = layer_of[:ops]
    found = []
    for i, layer in enumerate(layer_of):
        near = [j for j in range(i) if layer_of[j] == layer - 1]
        early = range(i - len([j for j in range(i) if layer_of[j] == layer]))
        count = min(len(early), max(1, round(source.expovariate(1 / degree)))) if near else 0
        reads = {source.choice(near) if source.random() < 0.75 else source.choice(early) for _ in range(count)}
        size = round(source.choice((2, 8, 32)) * (0.5 + source.random()) * 2**20)
        found.append(
            RecomputeOp(
                name=f"op{i}",
                time_us=source.randint(5, 200),
                output_bytes=size,
                inputs=tuple(sorted(reads)),
                comm=False,
            )
        )
    problem = RecomputeGraphProblem(name=f"wide-{ops}-s{seed}", budget_bytes=0, static_bytes=0, ops=tuple(found))
    return at_position(problem, position)


FAMILIES: dict[str, Callable[[], RecomputeGraphProblem]] = {
    "vgg16": vgg16,
    "unet": unet,
    "resnet50": resnet,
    "mobilenet-v2": mobilenet,
    "layered-200": random_layered,
    "layered-1000": lambda: random_layered(1000, width=6),
    "wide-250": wide_layers,
    "wide-500": lambda: wide_layers(500),
}
"""General graphs by name, at half way between the least budget and the peak without recomputation."""


def _problem(name: str, net: Network, position: float) -> RecomputeGraphProblem:
    problem = RecomputeGraphProblem(
        name=name, budget_bytes=0, static_bytes=STATE_BYTES * net.parameters, ops=net.training()
    )
    return at_position(problem, position)
