"""Operators that run again: lifetimes and memory worked out by hand, and of whole shapes by the closed formula."""

import pytest

from experiments.fit.again import run_again
from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.workload import Parallelism
from tests.experiments.fit.steps import MIB, two_layers


def test_what_runs_again_is_gone_in_between() -> None:
    """Only layer inputs wait: 16 + b0, b1; a1 is made again before layer 1's backward, a0 and b0 before layer 0's."""
    graph = run_again(two_layers(), {0, 2})
    assert [op.name for op in graph.ops[4:]] == [
        "layer 1 a (again)",
        "layer 1 back",
        "layer 0 a (again)",
        "layer 0 back",
    ]
    assert [op.phase for op in graph.ops[3:6]] == ["forward", "backward", "backward"]
    # states 16; 0: a0; 1: a0 b0; 2: b0 a1; 3: b0 a1 b1; 4: b0 b1 a1'; 5: and g1; 6: g1 a0'; 7: and g0
    assert [size // MIB for size in graph.memory_bytes] == [24, 28, 32, 36, 36, 40, 28, 32]
    assert graph.layer_of_op == (0, 0, 1, 1, 1, 1, 0, 0)


def test_nothing_again_is_the_step_itself() -> None:
    assert run_again(two_layers(), ()) == two_layers()


def test_what_an_operator_reads_again_waits_for_it() -> None:
    graph = run_again(two_layers(), {2})
    assert graph.tensor("b0").uses == (1, 2, 4, 5)
    assert graph.tensor("a1 (again)").uses == (4, 5)
    assert not graph.tensor("a1").saved


@pytest.mark.parametrize("microbatch", [1, 4])
def test_the_backward_of_a_layer_sees_the_same_bytes_of_its_own(microbatch: int) -> None:
    """Everything again in every layer: before a layer's backward begins, inputs of the layers below, and it alone."""
    cut = Parallelism(tensor=1, pipeline=1, sequence_parallel=False, microbatch=microbatch, microbatches=1)
    stage = Stage(read_shape("gpt-300m"), cut, read_hardware("a100-sxm-80"), given_layers=6)
    plain = stage.graph
    again = [n for n, op in enumerate(plain.ops) if op.phase == "forward" and (plain.layer_of_op or ())[n] is not None]
    graph = run_again(plain, again)
    saved = stage.costs.kept_bytes - stage.costs.input_bytes
    layers = stage.layers
    assert max(plain.memory_bytes) - max(graph.memory_bytes) >= (layers - 1) * (saved - stage.costs.input_bytes)
    assert len(graph.ops) == len(plain.ops) + len(again)
    assert sum(op.time_us for op in graph.ops) == sum(op.time_us for op in plain.ops) + sum(
        plain.ops[one].time_us for one in again
    )
