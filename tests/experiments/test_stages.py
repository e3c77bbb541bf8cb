"""A stage of a named model: its layers, what it holds, its graph."""

import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.ir import InvalidProblem
from solvers.workload import Parallelism

CLUSTER = read_hardware("lynx-nvlink")
CUT = Parallelism(tensor=2, pipeline=5, microbatch=2, microbatches=3)


def test_stages_share_the_layers_and_hold_fewer_and_fewer_microbatches() -> None:
    stages = [Stage(read_shape("gpt-300m"), CUT, CLUSTER, index) for index in range(5)]
    assert [stage.layers for stage in stages] == [5, 5, 5, 5, 4]
    assert [stage.inflight for stage in stages] == [3, 3, 3, 2, 1]
    assert [stage.is_last for stage in stages] == [False, False, False, False, True]
    assert [[extra.name for extra in stage.extras] for stage in stages] == [["embedding"], [], [], [], ["head"]]
    assert Stage(read_shape("gpt-300m"), CUT, CLUSTER, 0, 7).layers == 7


def test_its_graph_holds_at_its_peak_what_one_microbatch_keeps_at_least() -> None:
    stage = Stage(read_shape("gpt-300m"), Parallelism(tensor=2, microbatch=2), CLUSTER)
    graph = stage.graph
    assert len(graph.ops) == 24 * 30 + 4
    assert max(graph.memory_bytes) >= stage.unlimited_bytes
    assert max(graph.memory_bytes) < 1.1 * stage.unlimited_bytes


def test_more_stages_than_layers_are_refused() -> None:
    deep = Parallelism(pipeline=30, microbatch=1)
    for index in (0, 24):
        with pytest.raises(InvalidProblem, match="gpt-300m has 24 layers, too few for 30 stages"):
            _ = Stage(read_shape("gpt-300m"), deep, CLUSTER, index).layers


def test_more_layers_than_leave_one_for_every_other_stage_are_refused() -> None:
    assert Stage(read_shape("gpt-300m"), CUT, CLUSTER, 0, 20).layers == 20
    with pytest.raises(InvalidProblem, match="layers is 21, but of the 24 layers of gpt-300m a stage of 5 can have 20"):
        _ = Stage(read_shape("gpt-300m"), CUT, CLUSTER, 0, 21).layers
