"""Layout problems from measured steps: computed graphs give back what they were made of, a profiled model fits."""

import math
from typing import Any

import msgspec
import pytest
import torch

from experiments.hardware import read_hardware
from experiments.models.gpt import Block, Gpt, GptShape
from experiments.shapes import read_shape
from runtime.profile import profile_step
from solvers.check.layout.judge import device_peak, judge_layout
from solvers.ir import InvalidInput, LayoutProblem, Limits, Op, OpGraph, Schedule, Tensor
from solvers.ir.codec import problem_from_raw, problem_to_raw
from solvers.ir.graph import Phase
from solvers.layout.evaluate import all_on_device, instance
from solvers.layout.exact.solver import ExactLayout
from solvers.layout.interleaved import interleaved_plan
from solvers.layout.least import Least
from solvers.layout.make import Rank
from solvers.layout.measured import gradient_reader, make_layout_problem, problem_from_graph, remarks
from solvers.layout.search import Search
from solvers.planner import planner
from solvers.timeline import simulate
from solvers.workload import Parallelism, embedding_extra, head_extra, megatron_layer, stage_graph
from tests.runtime.profile.memory.models import Adapted

CARDS = read_hardware("protrain-3090")
ROWS: list[tuple[str, Phase, int, str, str]] = [
    ("embed", "forward", 5, "table tokens", "e"),
    ("layer", "forward", 10, "e w0", "a"),
    ("between", "forward", 1, "a", "n"),
    ("layer", "forward", 12, "n w1", "b"),
    ("head", "forward", 7, "b table", "loss"),
    ("head back", "backward", 8, "loss b table", "gb"),
    ("layer back", "backward", 20, "gb w1 n", "gn"),
    ("between back", "backward", 2, "gn", "ga"),
    ("layer back", "backward", 25, "ga w0 e", "ge"),
    ("embed back", "backward", 3, "ge", "g"),
    ("adam", "optimizer", 50, "table w1 g m", "table w1 m"),
]
"""Embedding, two layers with an op between them, a head that reads the embedding's table; w0 is frozen, w9 unused."""
SIZES = {"table": 1000, "w0": 10, "w1": 30, "w9": 500, "g": 1030, "m": 2060, "tokens": 4, "e": 6, "a": 6, "n": 6}
SIZES |= {"b": 7, "loss": 2, "gb": 7, "gn": 6, "ga": 6, "ge": 6}
KINDS = {
    "g": "gradient",
    "m": "optimizer",
    "w0": "parameter",
    "w1": "parameter",
    "w9": "parameter",
    "table": "parameter",
}
LAYERS = (None, 0, None, 1, None, None, 1, None, 0, None, None)


def by_hand(rows: list[tuple[str, Phase, int, str, str]] = ROWS, layers: tuple[int | None, ...] = LAYERS) -> OpGraph:
    ops = tuple(
        Op(name=n, phase=p, time_us=t, inputs=tuple(i.split()), outputs=tuple(o.split())) for n, p, t, i, o in rows
    )
    born = {name: number for number, one in enumerate(ops) for name in one.outputs if one.phase != "optimizer"}
    tensors = tuple(
        msgspec.convert(
            {
                "id": name,
                "bytes": size,
                "born": born.get(name),
                "uses": [number for number, one in enumerate(ops) if name in (*one.inputs, *one.outputs)],
                "kind": KINDS.get(name, "activation" if name in born else "input"),
            },
            Tensor,
        )
        for name, size in SIZES.items()
    )
    return OpGraph(name="hand", ops=ops, tensors=tensors, memory_bytes=(1,) * len(ops), layer_of_op=layers)


def test_a_step_by_hand() -> None:
    """The table is tied: it lies in the first chunk, which the last block asks for, too."""
    problem = problem_from_graph(by_hand(), CARDS, Rank(chunk_bytes=1000), context_bytes=100, parameter_bytes=2)
    assert [(b.name, b.choice) for b in problem.blocks] == [
        ("first", False),
        ("layer 0", True),
        ("layer 1", True),
        ("last", False),
    ]
    assert [block.forward_us for block in problem.blocks] == [5, 11, 12, 7]
    assert [block.backward_us for block in problem.blocks] == [3, 25, 22, 8]
    assert [block.chunks for block in problem.blocks] == [(0,), (1,), (2,), (0,)]
    assert [chunk.trainable for chunk in problem.chunks] == [True, False, True]
    assert [block.input_bytes for block in problem.blocks] == [0, 6, 6, 7]
    assert [block.activation_bytes for block in problem.blocks] == [0, 6, 6, 9]
    assert [chunk.host_bytes for chunk in problem.chunks] == [2000, 10, 60]
    assert [chunk.persistent_bytes for chunk in problem.chunks] == [2000, 0, 60]
    assert problem.fixed_bytes == 4 + 500 + 100


def test_the_budget_of_a_problem_is_the_device_s_memory_unless_given() -> None:
    assert make_layout_problem(by_hand(), CARDS).device_bytes == 24 << 30
    small = make_layout_problem(by_hand(), CARDS, 10**6)
    assert small.device_bytes == 10**6 and small.ranks == 1
    with pytest.raises(InvalidInput, match="does not say how much memory a host has"):
        make_layout_problem(by_hand(), read_hardware("rtx-3090"))


def test_the_planner_hands_out_schedules() -> None:
    answer = planner("search")(by_hand(), CARDS, "20GiB")
    assert isinstance(answer.plan, Schedule)
    problem = make_layout_problem(by_hand(), CARDS, 20 << 30)
    assert simulate(problem, answer.plan).makespan_us == answer.objective


def test_a_parameter_used_nowhere_is_told() -> None:
    assert remarks(by_hand()) == ("a parameter is used nowhere (w9): in no chunk, always on the device",)
    more = msgspec.structs.replace(
        by_hand(), tensors=(*by_hand().tensors, *(Tensor(id=f"u{n}", bytes=1, kind="parameter") for n in range(4)))
    )
    assert remarks(more) == (
        "5 parameters are used nowhere (w9, u0, u1 and 2 more): in no chunk, always on the device",
    )


def test_without_an_optimizer_everything_is_trained_with_twelve_bytes_a_parameter() -> None:
    graph = by_hand(ROWS[:-1], LAYERS[:-1])
    problem = problem_from_graph(graph, CARDS, Rank(chunk_bytes=1000))
    assert [chunk.trainable for chunk in problem.chunks] == [True, True]
    assert [chunk.host_bytes for chunk in problem.chunks] == [6000, 6 * 40]


def test_a_step_without_repeated_layers_is_refused() -> None:
    plain = msgspec.structs.replace(by_hand(), layer_of_op=None)
    forward = [row for row in ROWS if row[0] in ("embed", "head", "head back", "embed back", "adam")]
    with pytest.raises(InvalidInput, match="has no forward ops that repeat"):
        problem_from_graph(msgspec.structs.replace(by_hand(forward, (None,) * 5), layer_of_op=None), CARDS)
    with pytest.raises(InvalidInput, match="lacks repeated layers with forward ops, or any backward"):
        problem_from_graph(msgspec.structs.replace(plain, layer_of_op=(None,) * 11), CARDS)
    forward_only = by_hand([row for row in ROWS if row[1] != "backward"], (None, 0, None, 1, None, None))
    with pytest.raises(InvalidInput, match="lacks repeated layers with forward ops, or any backward"):
        problem_from_graph(forward_only, CARDS)
    only_backward = (None, 0, None, 1, None, None, 1, None, 2, None, None)
    with pytest.raises(InvalidInput, match="lacks repeated layers with forward ops, or any backward"):
        problem_from_graph(msgspec.structs.replace(plain, layer_of_op=only_backward), CARDS)


def test_a_layer_whose_backward_is_not_named_is_refused_rather_than_taken_for_frozen() -> None:
    one_way = (None, 0, None, 1, None, None, 1, None, None, None, None)
    with pytest.raises(InvalidInput, match="a layer without backward ops, though backward uses 'w0', a param"):
        problem_from_graph(by_hand(ROWS, one_way), CARDS)


def test_frozen_first_layers_have_no_backward_keep_nothing_and_no_choice() -> None:
    """The table is frozen with layer 0; backward ends with a sum over layer 1's input, which is layer 1's, too."""
    rows = [row for row in ROWS if row[0] not in ("embed back", "between back") and row[3] != "ga w0 e"]
    rows = [(n, p, t, i.replace(" table", ""), o) for n, p, t, i, o in rows if n != "adam"]
    rows += [("sum", "backward", 4, "gn", "ge"), ("adam", "optimizer", 50, "w1 g m", "w1 m")]
    layers = (None, 0, None, 1, None, None, 1, None, None)
    problem = problem_from_graph(by_hand(rows, layers), CARDS, Rank(chunk_bytes=1000), context_bytes=0)
    assert [block.choice for block in problem.blocks] == [False, False, True, False]
    assert [block.backward_us for block in problem.blocks] == [0, 0, 24, 8]
    assert [block.activation_bytes for block in problem.blocks] == [0, 0, 6, 9]
    assert problem.blocks[1].input_bytes == problem.blocks[1].backward_transient_bytes == 0
    assert problem.blocks[1].forward_transient_bytes >= 6 + 6  # what it is given, and what it makes
    assert [problem.chunks[index].trainable for index in problem.blocks[1].chunks] == [False]
    assert all(not problem.chunks[index].trainable for index in problem.blocks[0].chunks)
    bare = problem_from_graph(by_hand(rows[:-1], layers[:-1]), CARDS, Rank(chunk_bytes=1000), context_bytes=0)
    assert [chunk.trainable for chunk in bare.chunks] == [chunk.trainable for chunk in problem.chunks]


def test_layers_that_do_not_run_one_after_the_other_are_refused() -> None:
    swapped = (None, 0, None, 1, None, None, 0, None, 1, None, None)
    with pytest.raises(InvalidInput, match="does not run its layers one after the other"):
        problem_from_graph(by_hand(ROWS, swapped), CARDS)


@pytest.mark.parametrize("name", ["gpt2-10b", "llama-34b"])
def test_a_computed_graph_gives_back_its_layers(name: str) -> None:
    shape, cut = read_shape(name), Parallelism(microbatch=2)
    costs = megatron_layer(shape, cut, CARDS)
    extras = embedding_extra(shape, cut, CARDS), head_extra(shape, cut, CARDS)
    graph = stage_graph(costs, 6, embedding=extras[0], head=extras[1], static_bytes=10**9)
    with pytest.raises(InvalidInput, match="no block uses a parameter"):
        problem_from_graph(graph, CARDS)  # its states are one tensor that no op names
    starts = [graph.layer_of_op.index(layer) for layer in range(6)] if graph.layer_of_op else []
    weights = tuple(Tensor(id=f"w{n}", bytes=10**8, uses=(at,), kind="parameter") for n, at in enumerate(starts))
    problem = problem_from_graph(msgspec.structs.replace(graph, tensors=(*graph.tensors, *weights)), CARDS)
    assert [block.chunks for block in problem.blocks] == [(), *((n,) for n in range(6)), ()]
    assert [block.choice for block in problem.blocks] == [False, *[True] * 6, False]
    assert {block.activation_bytes for block in problem.blocks[1:-1]} == {costs.kept_bytes}
    assert {block.input_bytes for block in problem.blocks[1:-1]} == {costs.input_bytes}
    assert {(b.forward_us, b.backward_us) for b in problem.blocks[1:-1]} == {(costs.forward_us, costs.backward_us)}
    assert problem.blocks[0].forward_us == extras[0].forward_us
    assert problem.blocks[-1].backward_us == extras[1].backward_us


@pytest.fixture(scope="module")
def profiled() -> OpGraph:
    return profiled_gpt(frozen=0)


def profiled_gpt(frozen: int) -> OpGraph:
    """A step of a GPT of four layers, the first ones frozen with the embeddings."""
    model = gpt()
    if frozen:
        model.positions.requires_grad_(False)
        for module in (model.tokens, *list(model.blocks)[:frozen]):
            module.requires_grad_(False)
    return profiled_step(model)


def gpt() -> Gpt:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Gpt(GptShape(layers=4, width=64, heads=4, context=64, batch=4))


def profiled_step(model: Gpt) -> OpGraph:
    optimizer, tokens = torch.optim.AdamW(model.parameters(), fused=True), torch.randint(0, 256, (4, 64))

    def step() -> None:
        optimizer.zero_grad()
        model(tokens, tokens).backward()
        optimizer.step()

    return profile_step(step, torch.device("cpu"), model=model, optimizer=optimizer)


def test_a_profiled_model_becomes_a_problem_whose_peak_is_the_measured_one(profiled: OpGraph) -> None:
    """Everything kept and persistent. Chunks are as small as can be, so that little of them is empty; their gradients
    take their places, so the measured gradients are taken off.
    """
    layers = 4
    problem = problem_from_graph(profiled, CARDS, Rank(chunk_bytes=65536), context_bytes=0, parameter_bytes=4)
    assert [block.choice for block in problem.blocks] == [False, *[True] * layers, False]
    assert len(problem.chunks) > layers and problem_from_raw(problem_to_raw(problem), "test") == problem
    assert 0 <= beyond_measured(problem, profiled) <= 0.02


def beyond_measured(problem: LayoutProblem, graph: OpGraph) -> float:
    """The peak of a plan that keeps everything on the device beyond the measured one, as a part of it."""
    parameters = sum(tensor.bytes for tensor in graph.tensors if tensor.kind == "parameter")
    empty = problem.chunk_bytes * len(problem.chunks) - parameters
    steps = zip(graph.memory_bytes, graph.ops, strict=True)
    measured = max(size for size, op in steps if op.phase != "optimizer")
    peak, _ = device_peak(problem, all_on_device(problem))
    return (peak - empty - measured) / measured


@pytest.mark.parametrize("frozen", [2, 4])
def test_a_profiled_model_with_frozen_first_layers(frozen: int) -> None:
    """Half of the layers, or all of them, where only the head is trained; solvers find plans that are valid."""
    graph = profiled_gpt(frozen)
    problem = problem_from_graph(graph, CARDS, Rank(chunk_bytes=65536), context_bytes=0, parameter_bytes=4)
    still, rest = problem.blocks[: frozen + 1], problem.blocks[frozen + 1 :]
    assert [block.choice for block in problem.blocks] == [False] * (frozen + 1) + [True] * (4 - frozen) + [False]
    assert all(block.backward_us == block.activation_bytes == 0 < block.forward_us for block in still)
    assert all(block.backward_us > 0 < block.activation_bytes for block in rest)
    used = [{index for block in blocks for index in block.chunks} for blocks in (still, rest)]
    assert [{problem.chunks[index].trainable for index in each} for each in used] == [{False}, {True}]
    assert 0 <= beyond_measured(problem, graph) <= 0.02
    most, _ = device_peak(problem, all_on_device(problem))
    tight = msgspec.structs.replace(problem, device_bytes=(Least(instance(problem)).device_bytes + most) // 2)
    for solver in (Search(), ExactLayout()):
        solution = solver.solve(tight, Limits(time_s=math.inf, work=0.2))
        assert solution.plan is not None and judge_layout(tight, solution.plan).clean


def test_a_profiled_model_whose_blocks_are_trained_by_adapters_only() -> None:
    """Every layer has a backward, and frozen chunks beside few trained ones."""
    model = gpt().requires_grad_(False)
    for block in model.blocks:
        assert isinstance(block, Block)
        block.widen, block.narrow = Adapted(block.widen), Adapted(block.narrow)  # type: ignore[assignment]
    graph = profiled_step(model)
    problem = problem_from_graph(graph, CARDS, Rank(chunk_bytes=65536), context_bytes=0, parameter_bytes=4)
    assert [block.choice for block in problem.blocks] == [False, *[True] * 4, False]
    assert all(block.backward_us > 0 < block.input_bytes < block.activation_bytes for block in problem.blocks[1:-1])
    trained = {index for index, chunk in enumerate(problem.chunks) if chunk.trainable}
    assert 0 < len(trained) < 0.1 * len(problem.chunks)
    assert all(trained & set(block.chunks) for block in problem.blocks[1:-1])
    assert 0 <= beyond_measured(problem, graph) <= 0.02


def test_a_profiled_model_s_layers_are_alike_and_can_be_checkpointed(profiled: OpGraph) -> None:
    problem = problem_from_graph(profiled, CARDS, Rank(chunk_bytes=65536), context_bytes=0, parameter_bytes=4)
    layers = [block for block in problem.blocks if block.choice]
    assert len({(b.activation_bytes, b.input_bytes, b.forward_transient_bytes) for b in layers}) == 1
    assert layers[0].input_bytes == 4 * 64 * 64 * 4  # batch, context, width, 4 bytes
    assert layers[0].activation_bytes > 5 * layers[0].input_bytes
    keep = interleaved_plan(problem, len(problem.chunks), 0, 0, 0)
    again = interleaved_plan(problem, len(problem.chunks), 0, 0, len(layers))
    saved = device_peak(problem, keep)[0] - device_peak(problem, again)[0]
    assert saved > 0.5 * 3 * (layers[0].activation_bytes - layers[0].input_bytes)
    assert judge_layout(problem, again).violations == ()
    assert instance(problem).problem is problem


@pytest.mark.parametrize(
    ("row", "reader"),
    [
        (("norm", "optimizer", 5, "g", "g"), "norm"),
        (("count", "optimizer", 5, "tokens", ""), None),
        (("decay", "optimizer", 5, "g w1", "w1"), None),
    ],
)
def test_gradients_that_are_read_before_the_optimizer_forbid_overlap(
    row: tuple[str, Phase, int, str, str], reader: str | None
) -> None:
    """A norm over all gradients waits for the last one; an op on a parameter is the optimizer's own."""
    graph = by_hand([*ROWS[:-1], row, ROWS[-1]], (*LAYERS, None))
    assert gradient_reader(graph) == reader
    assert problem_from_graph(graph, CARDS).overlap_update == (reader is None)
    assert not problem_from_graph(graph, CARDS, Rank(overlap_update=False)).overlap_update
    assert [said for said in remarks(graph) if "no update overlaps with backward" in said] == (
        ["norm reads gradients between backward and optimizer, as clipping does: no update overlaps with backward"]
        if reader
        else []
    )


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"foreach": False}])
def test_a_profiled_step_that_clips_and_one_that_does_not(options: dict[str, Any]) -> None:
    model = gpt()
    optimizer, tokens = torch.optim.AdamW(model.parameters(), **options), torch.randint(0, 256, (4, 64))

    def step(clip: bool) -> None:
        optimizer.zero_grad()
        model(tokens, tokens).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for clip in (False, True):
        graph = profile_step(lambda clip=clip: step(clip), "cpu", model=model, optimizer=optimizer)  # type: ignore[misc]
        assert (gradient_reader(graph) is not None) == clip
        assert problem_from_graph(graph, CARDS, parameter_bytes=4).overlap_update != clip


def test_a_dead_layer_of_a_profiled_model_is_told_and_its_bytes_are_fixed(profiled: OpGraph) -> None:
    """It is no transient of every block: all other figures are those of the same model without it."""
    model = gpt()
    model.dead = torch.nn.Linear(1000, 1000)
    graph = profiled_step(model)
    assert remarks(graph) == (
        "2 parameters are used nowhere (dead.weight, dead.bias): in no chunk, always on the device",
    )
    with_it, without = (
        problem_from_graph(each, CARDS, context_bytes=0, parameter_bytes=4) for each in (graph, profiled)
    )
    assert with_it.fixed_bytes - without.fixed_bytes == 4 * 1000 * 1001
    assert with_it.chunks == without.chunks
    for field in ("activation_bytes", "input_bytes", "forward_transient_bytes", "backward_transient_bytes"):
        assert [getattr(b, field) for b in with_it.blocks] == [getattr(b, field) for b in without.blocks], field
