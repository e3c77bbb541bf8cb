"""Shapes without bytes: what a program reads, what is refused, that nothing is touched, and that order still counts."""

import gc
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from runtime.device import SimDevice, memory_stats, use_sim
from runtime.device.temporaries import temporaries_of
from runtime.swap import ensure_in, swap_out
from solvers.ir.errors import InvalidInput
from tests.csrc.sim.conftest import ROUND

TIB = 1 << 40


def resident_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def test_a_tensor_far_larger_than_this_machine(shapes: SimDevice) -> None:
    """A tebibyte is made, copied, swapped out to page-locked memory and back, and not one page of it is there."""
    before = resident_mib()
    huge = torch.ones(TIB // 4, device="sim")
    assert memory_stats(shapes.device).allocated_bytes == TIB
    total = (huge.mul_(2).view(1 << 19, -1)[:, :1] + 1).sum()
    swap_out(huge)
    assert memory_stats(shapes.device).allocated_bytes < 1 << 20
    ensure_in(huge)
    assert total.item() == 1 and huge.sum().item() == 1
    assert shapes.counters().pinned_peak_bytes == TIB
    assert resident_mib() - before < 256


@pytest.mark.parametrize(
    ("dtype", "one", "none"),
    [(torch.float32, 1.0, 0.0), (torch.bfloat16, 1.0, 0.0), (torch.int64, 1, 0), (torch.bool, True, False)],
)
def test_what_a_program_reads(shapes: SimDevice, dtype: torch.dtype, one: object, none: object) -> None:
    made = torch.zeros(2, 3, device="sim", dtype=dtype)
    assert made[0, 0].item() == one and isinstance(made[0, 0].item(), type(one))
    assert made.tolist() == [[one] * 3] * 2 and made.cpu().stride() == (3, 1)
    shapes.set_item_value(0)
    assert made[0, 0].item() == none and made.cpu().tolist() == [[none] * 3] * 2
    pinned = torch.full((2, 3), 7, dtype=dtype).pin_memory() if dtype != torch.bool else None
    if pinned is not None:
        pinned.copy_(made, non_blocking=True)
        shapes.synchronize()
        assert pinned.eq(7).all()  # page-locked memory stays as the program left it


def test_item_values_that_make_no_sense(shapes: SimDevice) -> None:
    for value in (float("nan"), 2.0**63):  # An integer tensor's item would be no integer.
        with pytest.raises(InvalidInput, match="choose a finite one"):
            shapes.set_item_value(value)
    with pytest.raises(InvalidInput, match="set shapes_only in use_sim first"):
        use_sim(ROUND).set_item_value(2)


@pytest.mark.parametrize(
    ("operator", "call"),
    [
        ("nonzero", lambda x: x.nonzero()),
        ("masked_select", lambda x: x.masked_select(x > 0)),
        ("index", lambda x: x[x > 0]),
        ("_unique2", lambda x: x.unique()),
        ("equal", lambda x: torch.equal(x, x + 1)),
        ("_logcumsumexp", lambda x: x.logcumsumexp(0)),
    ],
)
def test_what_depends_on_data_is_refused_by_name(
    shapes: SimDevice, operator: str, call: Callable[[torch.Tensor], object]
) -> None:
    with pytest.raises(RuntimeError, match=rf"\b{operator}\b.*shapes_only.*: .*leave shapes_only out"):
        call(torch.ones(3, 4, device="sim"))


def test_sparse_gradients_are_refused(shapes: SimDevice) -> None:
    table = nn.Embedding(8, 4, sparse=True, device="sim")
    optimizer = torch.optim.SGD(table.parameters())
    table(torch.tensor([1, 2], device="sim")).sum().backward()
    with pytest.raises(RuntimeError, match=r"sparse tensors.*use dense ones"):
        optimizer.step()


def test_masks_and_indices_whose_results_have_known_sizes(shapes: SimDevice) -> None:
    x, where = torch.ones(6, 4, device="sim"), torch.tensor([0, 2], device="sim")
    x[x > 0] = 2
    assert x[where].shape == (2, 4) and x.masked_fill(x > 0, 0).shape == x.shape and x[:, where].stride() == (2, 1)
    assert x.resize_(8, 8).shape == (8, 8) and x.untyped_storage().nbytes() == 256
    torch.add(x, 1, out=(grown := torch.empty(0, device="sim")))
    assert grown.shape == (8, 8)


def test_random_operators_draw_nothing(shapes: SimDevice) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    torch.nn.functional.dropout(torch.randn(64, device="sim"), 0.5).normal_()
    assert torch.equal(torch.get_rng_state(), before)


def test_shape_functions_in_python_do_not_see_the_programs_modes(shapes: SimDevice) -> None:
    with torch.device("sim"):
        layer = nn.Conv2d(3, 4, 3)
        query = torch.ones(1, 2, 8, 4)
        out = torch.nn.functional.scaled_dot_product_attention(query, query, query)
        assert layer(torch.ones(1, 3, 8, 8)).shape == (1, 4, 6, 6) and out.device.type == "sim"


def test_a_forgotten_wait_is_still_a_race(shapes: SimDevice) -> None:
    x, side = torch.zeros(1024, device="sim"), torch.Stream(device="sim")
    with side, pytest.raises(RuntimeError, match=r"read by 'add'.*is not ordered after.*write by 'zero_'"):
        x + 1


def test_the_mode_does_not_change_under_living_tensors(shapes: SimDevice) -> None:
    held = torch.ones(4, device="sim")
    with pytest.raises(InvalidInput, match="512 bytes of tensors with shapes only, so use_sim cannot change"):
        use_sim(ROUND)
    assert shapes.shapes_only and use_sim(ROUND, shapes_only=True).shapes_only
    del held
    assert not use_sim(ROUND).shapes_only
    held = torch.full((4,), 3.0, device="sim")
    with pytest.raises(InvalidInput, match="tensors with real bytes"):
        use_sim(ROUND, shapes_only=True)
    assert held.tolist() == [3.0] * 4
    del held


def test_what_has_no_numbers_is_not_saved(shapes: SimDevice, tmp_path: Path) -> None:
    layer = nn.Linear(3, 2).to("sim")
    with pytest.raises(InvalidInput, match=r"torch\.save .* 24 bytes .* shapes only .*: leave the saving out"):
        torch.save(layer.state_dict(), tmp_path / "weights.pt")
    del layer
    use_sim(ROUND)
    torch.save(torch.full((2,), 3.0, device="sim"), tmp_path / "weights.pt")
    assert torch.load(tmp_path / "weights.pt").tolist() == [3.0, 3.0]


def test_garbage_in_circles_does_not_count_as_alive(shapes: SimDevice) -> None:
    circle: list[object] = [torch.ones(4, device="sim")]
    circle.append(circle)
    del circle
    assert not use_sim(ROUND).shapes_only


def test_memory_is_refused_at_the_capacity(shapes: SimDevice) -> None:
    gc.collect()
    shapes.set_capacity(1 << 20)
    with pytest.raises(torch.OutOfMemoryError, match=re.escape("an allocation of 2097152 bytes")):
        torch.empty(1 << 19, device="sim")


def test_a_lazy_clone_gets_bytes_of_its_own_when_it_is_written(shapes: SimDevice) -> None:
    x = torch.ones(1 << 10, device="sim")
    shared = torch._lazy_clone(x)
    assert memory_stats(shapes.device).allocated_bytes == 1 << 12
    shared.add_(1)
    assert memory_stats(shapes.device).allocated_bytes == 1 << 13


ROOT = Path(__file__).parents[4]
PRODUCTS = ((17, 33, 40), (34, 66, 130), (90, 50, 30), (5, 200, 7), (200, 300, 90), (245, 24, 13), (8, 16, 32))
"""Small and odd ones; none of them was measured for the table, and the last is too small to be cut into blocks."""
OTHER_CPU = "ONEDNN_MAX_CPU_ISA"
"""With this, oneDNN computes as on a CPU without a matrix unit."""


def took(left: tuple[int, ...], right: tuple[int, ...], *, turned: bool) -> list[int]:
    """What products of these sizes add to the memory in use while they run: alone, and three at a time."""
    grown = []
    for count in (1, 3):
        one, other = (torch.ones(count, *size, dtype=torch.bfloat16, device="sim") for size in (left, right))
        one = one.transpose(1, 2).contiguous().transpose(1, 2) if turned else one
        torch.accelerator.reset_peak_memory_stats()
        before = torch.accelerator.memory_allocated()
        made = one @ other if count > 1 else one[0] @ other[0]
        grown.append(torch.accelerator.max_memory_allocated() - before)
        del made
    return grown


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("rows", "inner", "columns"), PRODUCTS)
def test_small_products_in_half_precision_take_the_blocks_that_onednn_takes(
    shapes: SimDevice, rows: int, inner: int, columns: int, turned: bool
) -> None:
    seen = took((rows, inner), (inner, columns), turned=turned)
    assert shapes.doubtful_temporaries().total() == 0
    real = use_sim(ROUND)
    assert not real.shapes_only
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert seen == took((rows, inner), (inner, columns), turned=turned)
    torch.set_num_threads(threads)


@pytest.mark.skipif(OTHER_CPU in os.environ, reason="this is the other CPU")
def test_so_they_do_on_a_cpu_without_a_matrix_unit() -> None:
    """The test above once more; its skips are none here."""
    name = f"{__file__}::{test_small_products_in_half_precision_take_the_blocks_that_onednn_takes.__name__}"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    other = {**os.environ, OTHER_CPU: "AVX512_CORE_BF16"}
    done = subprocess.run(words, env=other, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"{2 * len(PRODUCTS)} passed" in done.stdout, done.stdout[-2000:]


def test_a_few_columns_of_a_tensor_that_no_machine_holds_are_multiplied() -> None:
    use_sim(shapes_only=True, capacity_bytes=1 << 42)
    large = torch.empty(64, 131072, 8192, dtype=torch.bfloat16, device="sim")
    other = torch.empty(8192, 64, dtype=torch.bfloat16, device="sim")
    assert (large[:, -1] @ other).shape == (64, 64)
    del large, other


def test_who_asks_the_table_hears_what_a_kernel_would_take(shapes: SimDevice) -> None:
    """Of a call that was not measured too, and without being counted as one that ran."""
    rows, inner, columns = 2000, 900, 700  # too many multiplications for a trial
    made = 2 * rows * columns
    sizes = (2 * rows * inner, 2 * inner * columns, made)
    taken = temporaries_of("mm: BFloat16c BFloat16c > BFloat16c", sizes, (rows, inner, columns, False))
    assert shapes.doubtful_temporaries().total() == 0
    assert took((rows, inner), (inner, columns), turned=False)[0] == -(-made // 512) * 512 + taken
    assert temporaries_of("mean: BFloat16c 1 > BFloat16c", (1 << 20, 1 << 10)) == 2 * ((1 << 20) + (1 << 10))
    with pytest.raises(InvalidInput, match="knows the call 'nothing: Floatc'"):
        temporaries_of("nothing: Floatc", (512,))


def test_small_integers_from_the_host_are_known_until_a_kernel_writes_them() -> None:
    use_sim(shapes_only=True)
    sizes = torch.tensor([3, 5, 7]).to("sim")
    assert sizes.tolist() == [3, 5, 7] and sizes[1].item() == 5
    assert (sizes + 1).tolist() == [1, 1, 1]  # what a kernel computes is not
    sizes[1:].zero_()
    assert sizes.tolist() == [1, 1, 1]
    assert torch.tensor([2.5]).to("sim").item() == 1  # nor are floats
