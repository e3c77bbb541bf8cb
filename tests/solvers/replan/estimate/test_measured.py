"""A replan problem from a measured step: computed graphs give back what they were made of, a profiled model fits F8."""

import msgspec
import pytest
import torch

from experiments.hardware import read_hardware
from experiments.models.gpt import GptShape
from experiments.shapes import read_shape
from runtime.profile import profile_step
from solvers.ir import InvalidInput, Op, OpGraph, Tensor
from solvers.replan.estimate.measured import Nodes, problem_from_graph
from solvers.replan.estimate.memory import stage_bytes
from solvers.replan.estimate.pipeline import pipeline_us
from solvers.workload import Parallelism, megatron_layer, stage_extras, stage_graph
from solvers.workload.parts import Shares, measured_parts

CLUSTER = read_hardware("lynx-nvlink")
GIGABYTE = 10**9


@pytest.fixture(scope="module")
def profiled() -> OpGraph:
    torch.set_num_threads(1)
    device = torch.device("cpu")
    work = GptShape(layers=4, width=16, heads=2, context=16, batch=2).build(device)
    return profile_step(work.step, device, model=work.model, optimizer=work.optimizer)


def op(name: str, phase: str, time_us: int, inputs: str, outputs: str = "") -> Op:
    return msgspec.convert(
        {"name": name, "phase": phase, "time_us": time_us, "inputs": inputs.split(), "outputs": outputs.split()}, Op
    )


def by_hand() -> OpGraph:
    """Embedding, two layers with an op between them, a head that reads the embedding's table, and an optimizer.

    Each tensor's bytes are a power of ten: table 1000 (both ends), weights 10 and 30, gradients and moments of all.
    """
    ops = (
        op("embed", "forward", 5, "table tokens", "e"),
        op("layer", "forward", 10, "e w0", "a"),
        op("between", "forward", 1, "a", "n"),
        op("layer", "forward", 12, "n w1", "b"),
        op("head", "forward", 7, "b table", "loss"),
        op("head back", "backward", 8, "loss b table", "gb"),
        op("layer back", "backward", 20, "gb w1 n", "gn"),
        op("between back", "backward", 2, "gn", "ga"),
        op("layer back", "backward", 25, "ga w0 e", "ge"),
        op("embed back", "backward", 3, "ge", "g"),
        op("adam", "optimizer", 50, "table w0 w1 g m", "table w0 w1 m"),
    )
    sizes = {"table": 1000, "w0": 10, "w1": 30, "g": 1040, "m": 2080, "tokens": 4, "e": 6, "a": 6, "n": 6, "b": 7}
    sizes |= {"loss": 2, "gb": 7, "gn": 6, "ga": 6, "ge": 6}
    kinds = {name: "parameter" for name in ("table", "w0", "w1")} | {"g": "gradient", "m": "optimizer"}
    born = {name: number for number, one in enumerate(ops) for name in one.outputs if one.phase != "optimizer"}
    tensors = tuple(
        msgspec.convert(
            {
                "id": name,
                "bytes": size,
                "born": born.get(name),
                "uses": [number for number, one in enumerate(ops) if name in one.inputs],
                "kind": kinds.get(name, "activation" if name in born else "input"),
            },
            Tensor,
        )
        for name, size in sizes.items()
    )
    layers = (None, 0, None, 1, None, None, 1, None, 0, None, None)
    return OpGraph(name="hand", ops=ops, tensors=tensors, memory_bytes=(9000,) * 10 + (10**6,), layer_of_op=layers)


def test_a_step_is_taken_apart() -> None:
    parts = measured_parts(by_hand())
    assert parts.count == 2
    assert parts.forward_us == Shares(5, 23, 7) and parts.backward_us == Shares(3, 47, 8)
    assert parts.parameter_bytes == Shares(1000, 40, 1000)
    assert parts.state_bytes == Shares(4000 + 4, 160, 4000)  # parameter, gradient and two moments; the tokens
    assert parts.activation_bytes == Shares(6, 6 + 7, 2)  # what the backward pass reads: e; n and b; the loss
    assert parts.message_bytes == 7
    assert parts.peak_bytes == 9000  # the optimizer's peak is no pipeline's


def test_the_problem_of_that_step() -> None:
    """Two layers' 23 and 47 us are 11 and 23 each, and one us each for the last stage.

    Of 9000 bytes, 8164 states and 21 activations explain 8185: single ops work in 815. A message of 7 bytes at 2 bytes
    a second takes 3.5 s; four nodes sum a layer's 20 bytes of gradients in 2·3/4·20/2 = 15 s, the table's in 750.
    """
    problem = problem_from_graph(
        by_hand(),
        CLUSTER,
        Nodes(count=8, bytes_per_s=2, data_parallel=4, max_depth=3, budget_bytes=10_000),
        microbatches=5,
    )
    assert (problem.layers, problem.nodes, problem.microbatches, problem.max_depth) == (2, 8, 5, 3)
    assert (problem.forward_us, problem.backward_us) == (11, 23)
    assert problem.first_extra_us == (5, 3) and problem.last_extra_us == (7 + 1, 8 + 1)
    assert problem.memory_bytes == 10_000 - 815
    assert (problem.layer_static_bytes, problem.layer_activation_bytes) == (80, 7)
    assert (problem.first_static_bytes, problem.last_static_bytes) == (4004 + 3 * 6, 4002)
    assert (problem.p2p_us, problem.layer_sync_us, problem.sync_us) == (3_500_000, 15_000_000, 750_000_000)


def test_one_node_takes_as_long_as_the_measured_passes(profiled: OpGraph) -> None:
    problem = problem_from_graph(profiled, CLUSTER, Nodes(count=4, bytes_per_s=GIGABYTE), microbatches=8)
    step = sum(one.time_us for one in profiled.ops if one.phase != "optimizer")
    assert problem.layers == 4 and problem.max_depth == 4
    assert pipeline_us(problem, (4,), 3) == 3 * step


def test_one_node_holds_what_the_step_needed(profiled: OpGraph) -> None:
    """F8 and the working memory together are at least the measured peak, and the states are exactly those measured."""
    device = CLUSTER.device().memory_bytes
    problem = problem_from_graph(profiled, CLUSTER, Nodes(count=4, bytes_per_s=GIGABYTE), microbatches=1)
    passes = [m for m, one in zip(profiled.memory_bytes, profiled.ops, strict=True) if one.phase != "optimizer"]
    (held,) = stage_bytes(problem, (4,), 1)
    assert held + device - problem.memory_bytes >= max(passes)
    parts = measured_parts(profiled)
    states = sum(t.bytes for t in profiled.tensors if t.kind in ("parameter", "gradient", "optimizer"))
    assert states <= parts.state_bytes.total < 1.01 * states + 2048
    assert parts.parameter_bytes.layers == 4 * (12 * 16 * 16 + 13 * 16) * 4  # a block of width 16: weights and biases


@pytest.mark.parametrize("known", [True, False])
def test_a_computed_step_gives_back_its_costs(known: bool) -> None:
    shape, parallelism = read_shape("llama-2-7b"), Parallelism(tensor=4, microbatch=2)
    costs = megatron_layer(shape, parallelism, CLUSTER)
    embedding, head = stage_extras(shape, parallelism, CLUSTER, 0)
    graph = stage_graph(costs, 3, embedding=embedding, head=head, static_bytes=3000)
    if not known:
        graph = msgspec.structs.replace(graph, layer_of_op=None)
    problem = problem_from_graph(graph, CLUSTER, Nodes(count=2, bytes_per_s=costs.input_bytes), microbatches=4)
    assert (problem.forward_us, problem.backward_us) == (costs.forward_us, costs.backward_us)
    assert problem.first_extra_us == (embedding.forward_us, embedding.backward_us)
    assert problem.last_extra_us == (head.forward_us, head.backward_us)
    assert problem.layer_static_bytes == 1000 and problem.p2p_us == 10**6
    assert problem.layer_activation_bytes == costs.kept_bytes
    assert problem.memory_bytes <= CLUSTER.device().memory_bytes


def test_bad_steps_and_rates_are_told() -> None:
    graph = by_hand()
    with pytest.raises(InvalidInput, match="bytes_per_s is 0: give a rate of at least 1"):
        problem_from_graph(graph, CLUSTER, Nodes(count=2, bytes_per_s=0), microbatches=1)
    only_forward = msgspec.structs.replace(graph, layer_of_op=(None, 0, None, 1, *[None] * 7))
    with pytest.raises(InvalidInput, match="graph 'hand' has no layer with backward ops: profile a training step of"):
        problem_from_graph(only_forward, CLUSTER, Nodes(count=2, bytes_per_s=1), microbatches=1)
