"""Graphs by name: `FAMILY-OPS-sSEED@POSITION`, or a network's name in place of family, operators and seed."""

import random
import re
from collections.abc import Callable
from pathlib import Path

from experiments.graphs.forward import FORWARD, Nodes
from solvers.ir.codec import read_problem
from solvers.ir.errors import InvalidInput
from solvers.ir.names import unknown
from solvers.ir.recompute import RecomputeGraphProblem, RecomputeOp
from solvers.recompute.graph.instances import at_position, mobilenet, random_layered, resnet, unet, vgg16, wide_layers

SHIPPED = Path(__file__).resolve().parents[1] / "instances"


def _shipped(name: str) -> RecomputeGraphProblem:
    problem, _ = read_problem(SHIPPED / name)
    assert isinstance(problem, RecomputeGraphProblem)
    return problem


NETWORKS: dict[str, Callable[[], RecomputeGraphProblem]] = {
    "vgg16": vgg16,
    "unet3": lambda: unet(depth=3),
    "unet4": unet,
    "unet5": lambda: unet(depth=5, size=416),
    "resnet26": lambda: resnet(blocks=(2, 2, 2, 2)),
    "resnet50": resnet,
    "mobilenet-v2": mobilenet,
    "gpt300m": lambda: _shipped("opt-gpt300m-24l-1.json"),
}
"""Convolutional networks by formulas; the 24 layers of the shipped instances, at any budget."""
SAVED = 0.75
"""How often a backward operator reads what its forward operator read, and what it made."""
FORM = re.compile(r"(?P<family>[a-z0-9-]+?)(?:-(?P<ops>\d+)-s(?P<seed>\d+))?@(?P<position>0?\.\d+|0|1)")
MOST_OPS = 10_000


def by_name(name: str) -> RecomputeGraphProblem:
    """The problem of that name, the same for ever; `POSITION` is the budget's place in `at_position`."""
    found = FORM.fullmatch(name)
    if found is None:
        raise InvalidInput(f"{name!r} is no name of a graph: write FAMILY-OPS-sSEED@POSITION or NETWORK@POSITION")
    family, position = found["family"], float(found["position"])
    if found["ops"] is None:
        if family not in NETWORKS:
            raise unknown("network", family, NETWORKS)
        return at_position(NETWORKS[family](), position)
    ops, seed = int(found["ops"]), int(found["seed"])
    if not 4 <= ops <= MOST_OPS:
        raise InvalidInput(f"{name} has {ops} operators, the limits are 4 and {MOST_OPS}: choose a number between")
    if family == "layered":
        return random_layered(ops, width=4 + ops // 250, seed=seed, position=position)
    if family == "wide":
        return wide_layers(ops, seed=seed, position=position)
    if family not in FORWARD:
        raise unknown("family", family, ["layered", "wide", *FORWARD])
    source = random.Random(f"{family} {ops} {seed}")
    return at_position(training(f"{family}-{ops}-s{seed}", FORWARD[family](ops // 2, source), source), position)


def family_of(name: str) -> str:
    """What the graphs of a page are grouped by."""
    found = FORM.fullmatch(name)
    if found is None or found["ops"] is None:
        return "vision"
    return found["family"]


def training(name: str, forward: Nodes, source: random.Random) -> RecomputeGraphProblem:
    """The forward pass and its mirror: an operator's gradients from those of its readers and what it kept for them."""
    readers: list[list[int]] = [[] for _ in forward]
    for i, node in enumerate(forward):
        for j in node.inputs:
            readers[j].append(i)
    ops = [
        RecomputeOp(name=f"op{i}", time_us=node.time_us, output_bytes=node.output_bytes, inputs=node.inputs,
                    comm=node.comm)
        for i, node in enumerate(forward)
    ]  # fmt: skip
    mirror: dict[int, int] = {}
    for i in reversed(range(len(forward))):
        node = forward[i]
        reads = {mirror[u] for u in readers[i]} or {len(forward) - 1}
        reads |= {j for j in (*node.inputs, i) if not node.comm and source.random() < SAVED}
        mirror[i] = len(ops)
        ops.append(RecomputeOp(
            name=f"grad{i}",
            time_us=node.time_us if node.comm else round(node.time_us * (1 + source.random())),
            output_bytes=sum(forward[j].output_bytes for j in node.inputs) // 2,
            inputs=tuple(sorted(reads)),
            comm=node.comm,
        ))  # fmt: skip
    return RecomputeGraphProblem(name=name, budget_bytes=0, static_bytes=0, ops=tuple(ops))
