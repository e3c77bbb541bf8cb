"""Figure 4: variation and errors of groups whose times are known, and the two graphs behind the table."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.hardware import read_hardware
from experiments.models.gpt import GptShape
from experiments.reproduction import Cells
from experiments.shapes import read_shape
from experiments.smartswap.grouping import figure_4, group_figures
from experiments.smartswap.profiles import gpt_profile, llama_graph
from runtime.device.native import why_missing
from solvers.ir.graph import Launch, Op, OpGraph, Phase
from solvers.workload import Parallelism

BUILT = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")
TINY = GptShape(layers=2, width=32, heads=2, context=16, batch=2)


def graph(forward: Sequence[int], backward: Sequence[int]) -> OpGraph:
    """Operators whose launches hide behind the device's work."""
    phases: list[tuple[Phase, Sequence[int]]] = [("forward", forward), ("backward", backward)]
    ops = [
        Op(name=phase, phase=phase, time_us=time, launch=Launch(device_us=time, host_us=0))
        for phase, times in phases
        for time in times
    ]
    return OpGraph(name="story", ops=tuple(ops), tensors=(), memory_bytes=(0,) * len(ops))


def test_groups_of_whole_layers_do_not_vary_and_smaller_ones_do() -> None:
    repeated = graph([10, 30] * 4, [20, 60] * 4)  # four layers of two operators; 480 us in 16 operators: 30 us each
    hardware = read_hardware("sim-small")
    for groups in (1, 2, 4):
        forward = group_figures(repeated, hardware, "forward", groups)
        # Eq. 1 gives each pair 60 us where forward it takes 40, backward 80; the pass's own mean is exact.
        assert forward == pytest.approx({"cv": 0, "error": 50, "own": 0})
        assert group_figures(repeated, hardware, "backward", groups) == pytest.approx({"cv": 0, "error": 25, "own": 0})
    single = group_figures(repeated, hardware, "forward", 8)
    # Times 10 and 30, mean 20: standard deviation 10. Eq. 1 says 30: 200 % and 0 %. Own mean 20: 100 % and 33.3 %.
    assert single == pytest.approx({"cv": 50, "error": 100, "own": 200 / 3})


def test_operators_that_take_no_time_have_no_relative_error() -> None:
    figures = group_figures(graph([10, 0, 30, 20], [20]), read_hardware("sim-small"), "forward", 4)
    # 80 us in 5 operators: Eq. 1 says 16. Off by 6/10, 14/30, 4/20; of the pass's own mean 15 by 5/10, 15/30, 5/20.
    assert figures["error"] == pytest.approx(100 * (6 / 10 + 14 / 30 + 4 / 20) / 3)
    assert figures["own"] == pytest.approx(100 * (5 / 10 + 15 / 30 + 5 / 20) / 3)


@BUILT
def test_both_graphs_have_both_passes(tmp_path: Path) -> None:
    cells = Cells(tmp_path, hardware_names=("sim-small", "smartswap-910b"), model_names=("llama-2-7b",))
    profile = {"layers": 2, "width": 32, "heads": 2, "context": 16, "batch": 2}
    result = figure_4(
        cells,
        profile=profile,
        device="sim-small",
        model="llama-2-7b",
        cluster="smartswap-910b",
        groups=[1, 2, 16, 32, 64],
    )
    assert result.failed == 0
    gpt = result.named("CV, gpt forward").points
    assert list(gpt)[:3] == ["1, a layer or more", "2, a layer or more", "16, less than a layer"]
    assert list(gpt)[-1] == "single operators"
    assert gpt["1, a layer or more"] == 0
    llama = result.named("CV, llama backward").numbers()
    assert llama["32, a layer or more"] < llama["64, less than a layer"] < llama["single operators"]
    error = result.named("error with each pass's own mean, llama forward").numbers()
    assert error["1, a layer or more"] == 0
    assert error["32, a layer or more"] < error["single operators"]


@BUILT
def test_the_profile_is_a_real_step() -> None:
    profiled = gpt_profile(TINY, read_hardware("sim-small"))
    assert {op.phase for op in profiled.ops} == {"forward", "backward", "optimizer"}
    assert "sim" in profiled.source
    assert sum(op.name == "aten::gelu" for op in profiled.ops) == TINY.layers
    assert all(op.time_us > 0 for op in profiled.ops if op.flops)


def test_the_formulas_make_a_whole_model() -> None:
    made = llama_graph(read_shape("llama-2-7b"), read_hardware("smartswap-910b"), 32, Parallelism(microbatch=1))
    assert made.layer_of_op is not None
    assert {layer for layer in made.layer_of_op if layer is not None} == set(range(32))
    ends = [op.name for op, layer in zip(made.ops, made.layer_of_op, strict=True) if layer is None]
    assert ends  # embedding and head
