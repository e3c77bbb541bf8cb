"""What the records of each kind refuse, and the small sums that they do themselves."""

from typing import Any

import msgspec
import pytest

from solvers.ir import (
    CurrentPipeline,
    CurrentState,
    Device,
    Hardware,
    InvalidProblem,
    LayerOp,
    Link,
    Op,
    OpGraph,
    PartitionProblem,
    RecomputeGraphProblem,
    RecomputeLayerProblem,
    RecomputeOp,
    ReplanProblem,
    SwapLink,
    SwapOp,
    SwapProblem,
    Tensor,
)
from solvers.ir.fields import LARGEST


def graph(**fields: Any) -> OpGraph:
    """One op that writes one tensor."""
    op = Op(name="matmul", phase="forward", time_us=1, outputs=(0,))
    usual = {"name": "g", "ops": (op,), "tensors": (Tensor(id=0, bytes=1, born=0),), "memory_bytes": (1,)}
    return OpGraph(**{**usual, **fields})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ops": (), "memory_bytes": ()}, "graph 'g' has no ops"),
        ({"memory_bytes": ()}, "memory_bytes has 0 entries for 1 ops"),
        ({"layer_of_op": (0, 0)}, "layer_of_op has 2 entries for 1 ops"),
        ({"tensors": ()}, r"ops\[0\] refers to tensor 0, which is not listed"),
        ({"tensors": (Tensor(id=0, bytes=1), Tensor(id=0, bytes=1))}, "tensor 0 appears twice"),
        ({"tensors": (Tensor(id=0, bytes=1, born=1),)}, r"tensors\[0\].born is 1, but there are only 1 ops"),
        ({"tensors": (Tensor(id=0, bytes=1, uses=(0, 1)),)}, r"tensors\[0\].uses is 1"),
    ],
)
def test_graphs_that_contradict_themselves_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidProblem, match=words):
        graph(**fields)


def test_uses_stand_in_order_and_tensors_are_found_by_id() -> None:
    op = Op(name="matmul", phase="forward", time_us=1)
    with pytest.raises(InvalidProblem, match="not in order"):
        graph(ops=(op, op), memory_bytes=(1, 1), tensors=(Tensor(id=0, bytes=1, uses=(1, 0)),))
    assert graph().tensor(0).born == 0


def test_hardware_finds_devices_and_links_by_direction() -> None:
    gpu, host = (
        Device(name="gpu", memory_bytes=9, efficiency={"matmul": 0.5, "other": 0.25}),
        Device(name="host", memory_bytes=99),
    )
    out = Link(a="gpu", b="host", bytes_per_s=4, duplex="simplex")
    both = Link(a="gpu", b="gpu", bytes_per_s=8)
    machine = Hardware(name="m", devices=(host, gpu), links=(out, both))
    assert machine.device() is gpu
    assert machine.device("host") is host
    assert machine.link("gpu", "host") is out
    with pytest.raises(InvalidProblem, match="no link from 'host' to 'gpu'"):
        machine.link("host", "gpu")
    with pytest.raises(InvalidProblem, match="no device 'tpu'"):
        machine.device("tpu")
    assert [gpu.reached(name) for name in ("matmul", "copy")] == [0.5, 0.25]
    assert host.reached("matmul") == 1


def test_a_machine_has_devices_of_different_names_and_links_between_them() -> None:
    gpu = Device(name="gpu", memory_bytes=9)
    with pytest.raises(InvalidProblem, match="has no device"):
        Hardware(name="m", devices=())
    with pytest.raises(InvalidProblem, match="device 'gpu' appears twice"):
        Hardware(name="m", devices=(gpu, gpu))
    with pytest.raises(InvalidProblem, match=r"links\[0\] ends at 'moon'"):
        Hardware(name="m", devices=(gpu,), links=(Link(a="gpu", b="moon", bytes_per_s=1),))


def test_transfers_take_latency_and_whole_microseconds() -> None:
    """7 bytes at 2 bytes/us: 3.5 us, rounded up to 4; 3 us of latency before."""
    link = SwapLink(out_bytes_per_s=2_000_000, in_bytes_per_s=7_000_000, latency_us=3)
    assert (link.out_us(7), link.in_us(7), link.out_us(0)) == (7, 4, 3)
    assert Link(a="x", b="y", bytes_per_s=2_000_000, latency_us=2.5).transfer_us(7) == 7
    large = SwapLink(out_bytes_per_s=3, in_bytes_per_s=1, latency_us=0)  # exact where floats are not
    assert large.out_us(2**53) == (2**53 * 1_000_000 + 2) // 3


@pytest.mark.parametrize("inputs", [(0,), (1,), (-1,)])
def test_ops_read_earlier_ops_only(inputs: tuple[int, ...]) -> None:
    node = RecomputeOp(name="a", time_us=1, output_bytes=1, inputs=inputs, comm=False)
    with pytest.raises(InvalidProblem, match=r"ops\[0\] reads op"):
        RecomputeGraphProblem(name="g", budget_bytes=1, static_bytes=0, ops=(node,))
    part = LayerOp(name="a", time_us=1, output_bytes=1, inputs=inputs, comm=False, needed=True)
    with pytest.raises(InvalidProblem, match=r"ops\[0\] reads op"):
        layer((part,))


def layer(ops: tuple[LayerOp, ...]) -> RecomputeLayerProblem:
    """One layer without windows."""
    return RecomputeLayerProblem(
        name="l",
        layers=1,
        inflight_microbatches=1,
        last_stage=False,
        budget_bytes=1,
        static_bytes=0,
        layer_input_bytes=0,
        windows=(),
        ops=ops,
    )


def test_empty_problems_are_refused() -> None:
    with pytest.raises(InvalidProblem, match="ops is empty"):
        RecomputeGraphProblem(name="g", budget_bytes=1, static_bytes=0, ops=())
    with pytest.raises(InvalidProblem, match="ops is empty"):
        layer(())


def test_steps_that_no_file_holds_are_refused() -> None:
    """Their bounds would be rounded, and some above the plan's own objective."""
    long = tuple(RecomputeOp(name="o", time_us=time, output_bytes=1, inputs=(), comm=False) for time in (LARGEST, 3))
    with pytest.raises(InvalidProblem, match=f"a step may take {2 * LARGEST + 3} us, beyond the {LARGEST}"):
        RecomputeGraphProblem(name="g", budget_bytes=9, static_bytes=0, ops=long)
    with pytest.raises(InvalidProblem, match=f"a step may take {LARGEST + 3} us, beyond"):
        layer(tuple(LayerOp(**msgspec.to_builtins(one) | {"needed": True}) for one in long))
    link = SwapLink(out_bytes_per_s=1, in_bytes_per_s=1, latency_us=0)
    ops = tuple(SwapOp(name="o", time_us=time, phase="forward") for time in (LARGEST, 3))
    with pytest.raises(InvalidProblem, match=f"a step may take {LARGEST + 3} us, beyond the {LARGEST}"):
        SwapProblem(name="s", budget_bytes=9, ops=ops, memory_bytes=(1, 1), tensors=(), link=link)


def test_a_cost_table_has_a_row_a_stage_and_a_column_a_count() -> None:
    with pytest.raises(InvalidProblem, match="cost_us has 1 rows for 2 stages"):
        PartitionProblem(name="p", stages=2, layers=1, cost_us=((None, 1),))
    with pytest.raises(InvalidProblem, match=r"cost_us\[1\] has 1 entries for 0…1 layers"):
        PartitionProblem(name="p", stages=2, layers=1, cost_us=((None, 1), (None,)))


def replan(**fields: Any) -> ReplanProblem:
    """Two nodes that ran one pipeline of two layers."""
    usual: dict[str, Any] = {
        "name": "r", "nodes": 2, "microbatches": 1, "layers": 2, "forward_us": 1, "backward_us": 2,
        "first_extra_us": (0, 0), "last_extra_us": (0, 0), "p2p_us": 0, "sync_us": 0, "memory_bytes": 9,
        "layer_static_bytes": 1, "layer_activation_bytes": 1, "first_static_bytes": 0, "last_static_bytes": 0,
        "max_depth": 2, "current": current((1, 1), (0, 1)), "restart_us": 1, "bytes_per_s": 1,
        "expected_interval_us": 9,
    }  # fmt: skip
    return ReplanProblem(**{**usual, **fields})


def current(layers: tuple[int, ...], nodes: tuple[int, ...], failed: tuple[int, ...] = ()) -> CurrentState:
    """One running pipeline."""
    return CurrentState(pipelines=(CurrentPipeline(layers=layers, nodes=nodes, microbatches=1),), failed=failed)


def test_a_replan_problem_and_its_current_state_agree() -> None:
    assert replan().current is not None
    with pytest.raises(InvalidProblem, match="need current"):
        replan(current=None)
    with pytest.raises(InvalidProblem, match="current needs restart_us"):
        replan(restart_us=None)
    with pytest.raises(InvalidProblem, match=r"current.pipelines\[0\] holds 3 of 2 layers"):
        replan(current=current((1, 2), (0, 1)))
    with pytest.raises(InvalidProblem, match="current has 2 nodes alive, more than nodes = 1"):
        replan(nodes=1)
    assert replan(nodes=1, current=current((1, 1), (0, 1), failed=(1,))).nodes == 1
    with pytest.raises(InvalidProblem, match="2 stages but 1 nodes"):
        current((1, 1), (0,))
    with pytest.raises(InvalidProblem, match="node 0 appears twice"):
        current((1, 1), (0, 0))
    with pytest.raises(InvalidProblem, match="failed node 1 appears twice"):
        current((1, 1), (0, 1), failed=(1, 1))
