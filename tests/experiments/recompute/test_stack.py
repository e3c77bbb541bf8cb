"""A stage of Megatron's layers at small size, with numbers: the same bits under policies, windows from `all_reduce`.

Nothing of the layers knows of windows: their all-reduces are synchronous calls of torch.distributed.
"""

import pytest
import torch

from experiments.hardware import read_hardware
from experiments.recompute.stack import POLICIES, Case, execute, measure, run_case
from experiments.recompute.stack_page import page
from experiments.recompute.stack_planning import middle, plan_stack, simulated
from experiments.recompute.stack_program import Stack
from runtime.recompute.policy import store_everything, store_nothing
from solvers.workload import ModelShape, Parallelism
from tests.accelerators import prepare_sim
from tests.soaking import in_soak

REFUSED = prepare_sim()
pytestmark = [pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED)), pytest.mark.usefixtures("plain_sim")]
SHAPE = ModelShape(name="small", layers=6, hidden=64, heads=4, kv_heads=4, ffn=256, vocab=96, sequence=48)


def stack(stage: int, *, shapes_only: bool = False) -> Stack:
    """Three layers on two devices; six microbatches, of which stage 0 has two in flight."""
    cut = Parallelism(tensor=2, pipeline=2, microbatch=4, microbatches=6)
    return Stack(SHAPE, cut, stage, read_hardware("sim-cluster"), torch.float32, shapes_only)


@pytest.mark.parametrize("stage", [in_soak(0), 1])
def test_bits_are_those_of_no_recomputation_and_times_those_predicted(stage: int) -> None:
    """Embedding and forward windows on the first stage, the loss over a split vocabulary on the last."""
    small = stack(stage)
    plain = execute(small, None)
    log = measure(small)
    everything, nothing = (execute(small, store(3)) for store in (store_everything, store_nothing))
    assert everything.peak_bytes == plain.peak_bytes and everything.step_us == plain.step_us
    assert nothing.peak_bytes < plain.peak_bytes
    budget = (nothing.peak_bytes + plain.peak_bytes) // 2
    told = plan_stack("heu groups=2", log, small, budget)
    assert told is not None
    planned = execute(small, told.policies)
    assert planned.hidden_us > plain.hidden_us
    assert planned.hidden_us - plain.hidden_us == pytest.approx(told.predicted.hidden_us, abs=1e-6)
    assert planned.step_us == pytest.approx(told.predicted.step_us, abs=1e-3)
    assert planned.peak_bytes <= budget
    for ran in (everything, nothing, planned):
        assert [one.digests for one in ran.done] == [one.digests for one in plain.done] and ran.races == 0


def test_a_layer_has_a_window_for_each_all_reduce_of_a_pass() -> None:
    """As many as Lynx has, two forwards and two backwards; what the all-reduces leave is stored, and needs room."""
    layer = middle(measure(stack(0)))
    assert len(layer.forward_waits_us) == len(layer.backward_waits_us) == 2
    assert min(*layer.forward_waits_us, *layer.backward_waits_us) > 0
    sums = [unit for unit in layer.units if unit.communicates]
    assert len(sums) == 2 and all(unit.fixed is not None and unit.bytes > 0 for unit in sums)


def test_shapes_take_the_time_and_memory_of_numbers() -> None:
    for policies in (None, store_nothing(3)):
        numbers, shapes = (execute(stack(0, shapes_only=only), policies) for only in (False, True))
        assert (numbers.step_us, numbers.peak_bytes) == (shapes.step_us, shapes.peak_bytes)
        assert shapes.done[0].digests == []


def test_a_case_has_a_row_for_each_policy_beside_the_simulated_stage() -> None:
    case = Case(shape="gpt-300m", cluster="lynx-nvlink", tensor=2, pipeline=8, stage=6, microbatch=2, microbatches=3)
    loose = simulated("full", case.stack(), 1 << 40)
    assert loose is not None
    budget = loose.peak_bytes + (1 << 30)
    rows = list(run_case(case, ("full", "heu"), budget))
    assert [row["policy"] for row in rows] == ["no recomputation", "full", "heu"]
    for row in rows[1:]:
        assert row["executed"]["peak_bytes"] <= budget
        # Launching is slower than some of these small kernels, which no prediction knows.
        assert row["executed"]["exposed_us"] == pytest.approx(row["predicted"]["exposed_us"], rel=1e-3)
    full, heu = rows[1:]
    assert heu["executed"]["exposed_us"] < full["executed"]["exposed_us"]
    assert "no plan" not in page(rows) and page(rows).count("\n| ") == 4
    assert set(POLICIES) >= {"full", "heu"}
