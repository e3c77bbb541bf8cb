"""A model on devices as a replan problem: its bytes and times are the workload's, its states the judge's."""

import msgspec
import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from solvers.ir import InvalidInput
from solvers.replan.make import Trained, after_failures, even_layers, symmetric_state
from solvers.workload import Parallelism, static_bytes

GIGA = 10**9
SEVEN_B = Trained(shape=read_shape("llama-2-7b"), machine=read_hardware("ascend-910b"), bytes_per_s=25 * GIGA)


def test_all_layers_and_extras_are_the_whole_model() -> None:
    problem = SEVEN_B.problem(depth=4, data=8, microbatches=64)
    whole = static_bytes(SEVEN_B.sized, Parallelism(pipeline=1, microbatch=1, microbatches=1), 0, 32)
    head = SEVEN_B.problem(depth=1, data=32, microbatches=64).last_static_bytes - SEVEN_B.static_bytes(2)
    told = 32 * problem.layer_static_bytes + problem.first_static_bytes + problem.last_static_bytes - head
    assert told == whole
    assert problem.nodes == 32 and problem.data_parallel == 8


def test_without_the_head_nothing_but_layers_takes_time_or_memory() -> None:
    plain = msgspec.structs.asdict(
        Trained(shape=SEVEN_B.shape, machine=SEVEN_B.machine, bytes_per_s=GIGA, head=False, layers=80).problem(
            depth=16, data=2, microbatches=32
        )
    )
    assert plain["layers"] == 80
    assert [plain[name] for name in ("first_extra_us", "last_extra_us")] == [(0, 0), (0, 0)]
    assert plain["first_static_bytes"] == plain["last_static_bytes"] == 0


def test_eight_devices_to_a_node_share_its_layers() -> None:
    machine = read_hardware("smartswap-910b")
    shared = Trained(shape=SEVEN_B.shape, machine=machine, bytes_per_s=25 * GIGA, tensor=8)
    ratio = SEVEN_B.static_bytes(1) / shared.static_bytes(1)
    assert 7.9 < ratio <= 8.0
    assert shared.costs.forward_us < SEVEN_B.costs.forward_us / 4


def test_a_ring_sends_nearly_twice_the_gradients() -> None:
    assert SEVEN_B.all_reduce_us(1) == 0
    gradients_us = 10**6 * SEVEN_B.static_bytes(1) / 8 / SEVEN_B.bytes_per_s
    assert SEVEN_B.all_reduce_us(2) == pytest.approx(gradients_us, abs=1)
    assert SEVEN_B.all_reduce_us(1000) == pytest.approx(2 * gradients_us, rel=0.002)


def test_failures_leave_a_problem_that_knows_what_ran() -> None:
    whole = SEVEN_B.problem(depth=4, data=2, microbatches=16)
    state = symmetric_state(whole, 4, 2)
    assert [pipeline.nodes for pipeline in state.pipelines] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    failed = after_failures(whole, state, (2, 5), restart_us=10**6, bytes_per_s=25 * GIGA, expected_interval_us=10**9)
    assert failed.nodes == failed.max_depth == 6
    assert failed.current is not None and failed.current.failed == (2, 5)


@pytest.mark.parametrize(
    ("layers", "depth", "expected"), [(9, 4, (3, 2, 2, 2)), (8, 8, (1,) * 8), (32, 3, (11, 11, 10))]
)
def test_even_layers(layers: int, depth: int, expected: tuple[int, ...]) -> None:
    assert even_layers(layers, depth) == expected


def test_bad_input_is_one_sentence() -> None:
    with pytest.raises(InvalidInput, match="3 layers cannot fill 4 stages with one each: take fewer stages"):
        even_layers(3, 4)
    whole = SEVEN_B.problem(depth=4, data=3, microbatches=16)
    with pytest.raises(InvalidInput, match="16 microbatches are no multiple of 3 pipelines: choose a multiple"):
        symmetric_state(whole, 4, 3)
    with pytest.raises(InvalidInput, match="bytes_per_s is 0: give a rate of at least 1"):
        Trained(shape=SEVEN_B.shape, machine=SEVEN_B.machine, bytes_per_s=0)
