"""F8 with embedding and head, what fits, and the fewest stages that hold a model, against enumeration."""

from itertools import combinations, pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.replan.judge import judge_replan
from solvers.ir import NewPipeline, ReplanPlan, ReplanProblem
from solvers.replan.estimate.memory import (
    fits,
    least_depth,
    most_layers,
    most_microbatches,
    rerouted_stage_bytes,
    stage_bytes,
)
from tests.solvers.replan.estimate.problems import changed


def splits(layers: int, depth: int) -> list[tuple[int, ...]]:
    """All ways to give each of `depth` stages a layer or more."""
    cuts = [(0, *inner, layers) for inner in combinations(range(1, layers), depth - 1)]
    return [tuple(b - a for a, b in pairwise(cut)) for cut in cuts]


def test_a_stage_holds_its_layers_the_microbatches_in_flight_and_its_end_of_the_model() -> None:
    """Stage s of four has 4 − s microbatches in flight, of three there are but three."""
    problem = changed(layer_static_bytes=100, layer_activation_bytes=10, first_static_bytes=7, last_static_bytes=1000)
    assert stage_bytes(problem, (2, 2, 2, 1), 8) == (2 * 140 + 7, 2 * 130, 2 * 120, 110 + 1000)
    assert stage_bytes(problem, (2, 2, 2, 1), 3) == (2 * 130 + 7, 2 * 130, 2 * 120, 110 + 1000)
    assert stage_bytes(problem, (3,), 8) == (3 * 110 + 1007,)


def test_llama_7b_as_in_the_notes() -> None:
    """16 bytes a parameter and 0.9 GB of activations a layer: 54.7, 65.3 and 80.6 GB on the first of 4, 3, 2 stages."""
    problem = changed(layer_static_bytes=3_240_000_000, layer_activation_bytes=900_000_000, memory_bytes=64 * 10**9)
    first = [stage_bytes(problem, layers, 16)[0] for layers in ((8,) * 4, (11, 11, 10), (16, 16))]
    assert [round(size / 1e9, 1) for size in first] == [54.7, 65.3, 80.6]
    assert [fits(problem, layers, 16) for layers in ((8,) * 4, (11, 11, 10), (16, 16))] == [True, False, False]


def test_a_survivor_of_a_rerouted_stage_may_have_its_whole_share_in_flight() -> None:
    """Two microbatches a pipeline, stage 1 down to one of three nodes: ⌈2·3/1⌉ = 6 there, so P − s = 3 in flight."""
    problem = changed(layer_activation_bytes=10)
    assert stage_bytes(problem, (1, 1, 1, 1), 2) == (20, 20, 20, 10)
    assert rerouted_stage_bytes(problem, (1, 1, 1, 1), 2, (0, 2, 0, 0), 3) == (20, 30, 20, 10)


small = st.builds(
    changed,
    layers=st.integers(1, 7),
    max_depth=st.integers(1, 6),
    memory_bytes=st.integers(0, 60),
    layer_static_bytes=st.integers(0, 9),
    layer_activation_bytes=st.integers(0, 9),
    first_static_bytes=st.integers(0, 30),
    last_static_bytes=st.integers(0, 30),
)


@settings(max_examples=200, deadline=None)
@given(small, st.integers(1, 7), st.integers(1, 9))
def test_a_split_fits_iff_no_stage_has_more_than_its_most(problem: ReplanProblem, depth: int, count: int) -> None:
    most = most_layers(problem, depth, count)
    assert all(a <= b for a, b in zip(most_layers(problem, depth, count + 1), most, strict=True))
    for layers in splits(problem.layers, depth):
        fitting = all(own <= limit for own, limit in zip(layers, most, strict=True))
        assert fits(problem, layers, count) == fitting
        assert most_microbatches(msgspec.structs.replace(problem, microbatches=9), layers) == max(
            (some for some in range(1, 10) if fits(problem, layers, some)), default=0
        )


@settings(max_examples=300, deadline=None)
@given(small)
def test_the_least_depth_is_the_first_that_enumeration_finds_and_all_deeper_ones_fit(problem: ReplanProblem) -> None:
    depths = range(1, min(problem.layers, problem.max_depth) + 1)
    fitting = [depth for depth in depths if any(fits(problem, layers, 1) for layers in splits(problem.layers, depth))]
    assert least_depth(problem) == (fitting[0] if fitting else None)
    assert fitting == list(depths)[len(depths) - len(fitting) :]


@settings(max_examples=100, deadline=None)
@given(small, st.integers(1, 6), st.integers(1, 9), st.data())
def test_the_judge_sees_the_same_memory(problem: ReplanProblem, depth: int, count: int, data: st.DataObject) -> None:
    problem = changed(**{name: getattr(problem, name) for name in MEMORY}, max_depth=7, microbatches=count)
    possible = splits(problem.layers, min(depth, problem.layers))
    layers = data.draw(st.sampled_from(possible))
    plan = ReplanPlan(
        policy="dynamic", pipelines=(NewPipeline(layers=layers, microbatches=count, nodes=None),), transfers=None
    )
    complaints = judge_replan(problem, plan).violations
    needed = [size for size in stage_bytes(problem, layers, count) if size > problem.memory_bytes]
    assert len(complaints) == len(needed)
    for complaint, size in zip(complaints, needed, strict=True):
        assert f"needs {size} bytes, but a node has {problem.memory_bytes}" in complaint


MEMORY = (
    "layers",
    "memory_bytes",
    "layer_static_bytes",
    "layer_activation_bytes",
    "first_static_bytes",
    "last_static_bytes",
)


@pytest.mark.parametrize("layers", [1, 1000])
def test_a_model_of_no_bytes_fits_one_node(layers: int) -> None:
    assert least_depth(changed(layers=layers, memory_bytes=0)) == 1
