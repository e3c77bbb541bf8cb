"""Requests of a step: in their order, what each block holds, and the same step again."""

from experiments.fit.trace import bytes_by_kind, graph_trace, kind_of
from solvers.ir.graph import Tensor
from solvers.timeline.segments import Event, held_before
from tests.experiments.fit.steps import MIB, two_layers
from tests.solvers.timeline.segments.levels import levels


def test_a_computed_step_asks_for_each_tensor_at_its_birth_and_frees_it_after_its_last_use() -> None:
    trace = graph_trace(two_layers())
    assert trace.step_begin == 3  # the states, by kind: 2 + 2 + 12
    assert levels(list(trace.events)) == [2, 4, 16, 24, 28, 40, 44, 48, 44, 32, 28, 32, 24, 20, 16]
    assert max(levels(list(trace.events))) * MIB == max(two_layers().memory_bytes)
    assert trace.ops == (0, 1, 2, 3, 4, 4, 4, 4, 5, 5, 5, 5)


def test_other_microbatches_are_there_all_the_time() -> None:
    trace = graph_trace(two_layers(), also_held_bytes=5 * MIB)
    assert levels(list(trace.events))[3] == 21


def test_bytes_by_kind_are_those_of_the_moment() -> None:
    trace = graph_trace(two_layers())
    held = held_before(trace.events, trace.step_begin + 5)  # op 4 has made its gradient
    assert bytes_by_kind(held, trace.kinds) == {
        "parameters": 2 * MIB,
        "gradients": 2 * MIB,
        "optimizer states": 12 * MIB,
        "activations": 28 * MIB,
        "temporaries": 4 * MIB,
        "other": 0,
    }
    assert bytes_by_kind([Event(77, 1)], {})["other"] == 512


def test_kinds_of_profiled_tensors() -> None:
    def told(**fields: object) -> str:
        return kind_of(Tensor(id=0, bytes=1, **fields))  # type: ignore[arg-type]

    assert told(kind="gradient") == "gradients"
    assert told(kind="optimizer") == "optimizer states"
    assert told(kind="input") == "other"
    assert told(kind="activation", born=0, uses=(0,), saved=True) == "activations"
    assert told(kind="activation", born=0, uses=(0,)) == told(kind="other", born=3, uses=(3,)) == "temporaries"
