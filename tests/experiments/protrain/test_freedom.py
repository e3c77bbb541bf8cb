"""A freer layout beside the paper's: gains on both sides of the truth, problems of uneven layers, and their picture."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from experiments.hardware import read_hardware
from experiments.protrain import setting
from experiments.protrain.pictures import crossing_figure, drawn, freedom_figure
from experiments.protrain.setting import GIB, with_host_link
from experiments.protrain.uneven import Layer, case_problem, layers_of, uneven_problem
from experiments.reproduction import Cells
from experiments.rows import rows_to_text
from experiments.shapes import read_shape
from solvers.ir import InvalidInput, Row
from solvers.ir.hardware import HOST
from solvers.ir.layout import LayoutProblem
from solvers.layout.make import Rank, problem_from_shape
from tests.experiments.protrain.test_tables import computed

PLACE = setting.Testbed(read_hardware("protrain-3090"), ranks=4, hosts=1, sequence=1024)
LINKS = {"PCIe 3": 15.8, "PCIe 5": 63}


def problem_of(tmp_path: Path, **case: Any) -> LayoutProblem:
    names = ("gpt2-1b", "mistral-7b", "mixtral-8x7b")
    cells = Cells(tmp_path, "test", 0, ("protrain-3090",), names)
    given = {"batch": 8, **case}
    return case_problem(PLACE, layers_of(cells, given, PLACE.sequence), given)


def test_layers_all_alike_are_the_shapes_own_problem() -> None:
    for name in ("gpt2-1b", "mistral-7b"):  # with a tied table, and without
        shape = msgspec.structs.replace(read_shape(name), sequence=1024)
        usual = problem_from_shape(shape, PLACE.hardware, Rank(ranks=4), batch=8)
        assert uneven_problem(PLACE, shape, [Layer(shape)] * shape.layers, 8, name=usual.name) == usual


def test_every_second_layer_of_another_shape(tmp_path: Path) -> None:
    """A layer of Mixtral has the attention of Mistral's and eight times its MLP, of which a token visits two parts."""
    problem = problem_of(tmp_path, shape="mistral-7b", other="mixtral-8x7b", every=2)
    dense, mixture = problem.blocks[1], problem.blocks[2]
    assert mixture.forward_us > 1.4 * dense.forward_us
    assert all(len(block.chunks) >= 8 for block in problem.blocks[2:33:2])
    assert all(len(block.chunks) <= 3 for block in problem.blocks[1:33:2])
    assert {block.forward_us for block in problem.blocks[1:33:2]} == {dense.forward_us}


def test_a_shortened_middle_costs_less(tmp_path: Path) -> None:
    """32 layers: 10 whole ones, 12 with a quarter of the sequence, 10 whole ones."""
    blocks = problem_of(tmp_path, shape="gpt2-1b", shortened=4).blocks[1:-1]
    whole, short = blocks[0], blocks[16]
    assert [block.activation_bytes == short.activation_bytes for block in blocks] == [False] * 10 + [True] * 12 + [
        False
    ] * 10
    assert 4 * short.activation_bytes <= whole.activation_bytes
    assert short.chunks and whole.forward_us > 3 * short.forward_us


def test_only_every_fourth_layer_is_trained(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, shape="gpt2-1b", every=4, trained=True)
    trained = {number for number, chunk in enumerate(problem.chunks) if chunk.trainable}
    for number, block in enumerate(problem.blocks[1:-1]):
        assert bool(trained & set(block.chunks)) == (number % 4 == 3)
        assert (block.backward_us == block.forward_us) == (number % 4 != 3)
    assert not trained & set(problem.blocks[0].chunks)
    assert 0.2 < len(trained) / len(problem.chunks) < 0.35


def test_other_fields_and_little_host_memory(tmp_path: Path) -> None:
    usual = problem_of(tmp_path, shape="gpt2-1b")
    changed = problem_of(tmp_path, shape="gpt2-1b", changes={"vocab": 256000}, host_gib=10)
    assert changed.host_bytes == 10 * GIB // 4 < usual.host_bytes
    assert changed.chunk_bytes > 3 * usual.chunk_bytes
    with pytest.raises(InvalidInput, match="multiple of the ranks"):
        problem_of(tmp_path, shape="gpt2-1b", batch=6)
    with pytest.raises(InvalidInput, match="4096 wide between ends of 1536"):
        problem_of(tmp_path, shape="gpt2-1b", other="mixtral-8x7b", every=2)


def test_the_rate_of_the_host_link_alone_changes() -> None:
    slower = with_host_link(PLACE.hardware, 3.0)
    for before, after in zip(PLACE.hardware.links, slower.links, strict=True):
        assert after.bytes_per_s == (3_000_000_000 if HOST in (before.a, before.b) else before.bytes_per_s)


def test_gains_lie_between_zero_and_what_the_bound_leaves(tmp_path: Path) -> None:
    """Row B, where on PCIe 5 swapping every second block is not enough: swapping nearly all is optimal."""
    cases = [{"label": "B", "shape": "gpt2-1b", "hardware": "protrain-3090", "batch": 64}]
    result = computed(tmp_path, "freedom", cases=cases, links={"PCIe 5": 63}, work=2)
    least, most = (result.named(name).numbers()["B, PCIe 5"] for name in ("gain", "gain at most"))
    assert 8 < least <= most
    assert result.named("swap interval").points == {"B, PCIe 5": 2}
    assert 1 < result.named("swap over forward").numbers()["B, PCIe 5"] < 1.2
    assert 50 < result.named("busy with swaps").numbers()["B, PCIe 5"] < 60
    (note,) = result.notes
    assert f"most in B, PCIe 5 ({least:.1f} %)" in note and "In 0 it gains less than 0.1 %" in note
    assert result.named("swapped, search").numbers()["B, PCIe 5"] <= 16
    assert result.named("swapped, freer").numbers()["B, PCIe 5"] > 20


def test_a_faster_link_never_loses_a_plan_that_a_slower_one_had(tmp_path: Path) -> None:
    """With next to no search the faster link keeps what was found for the slower one, whichever comes first."""
    cases = [{"label": "A", "shape": "gpt2-1b", "hardware": "protrain-3090", "batch": 32}]
    steps = computed(tmp_path, "freedom", cases=cases, links={"PCIe 4": 31.5, "PCIe 3": 15.8}, work=0.1)
    found = steps.named("freer layout").numbers()
    assert list(found) == ["A, PCIe 3", "A, PCIe 4"]
    assert found["A, PCIe 3"] >= found["A, PCIe 4"]


def test_what_does_not_fit_gains_nothing(tmp_path: Path) -> None:
    cases = [{"label": "B", "shape": "gpt2-1b", "hardware": "protrain-3090", "batch": 4096}]
    result = computed(tmp_path, "freedom", cases=cases, links={"PCIe 3": 15.8}, work=1)
    assert {one.points["B, PCIe 3"] for one in result.series} == {"out of memory"} and not result.notes


def test_crossing_is_where_moving_a_block_takes_as_long_as_its_forward_pass(tmp_path: Path) -> None:
    result = computed(tmp_path, "crossing", machines={"A100": "protrain-a100"}, links=[31.5, 61, 63])
    rate = result.named("swapping is faster from").numbers()["A100"]
    assert 61 < rate < 63
    swap, again = (result.named(name).numbers() for name in ("swapping a block", "computing it again"))
    assert swap["A100, 61 GB/s"] > again["A100, 61 GB/s"] == again["A100, 63 GB/s"] > swap["A100, 63 GB/s"]
    assert swap["A100, 31.5 GB/s"] / again["A100, 31.5 GB/s"] == pytest.approx(rate / 31.5, rel=1e-3)


def kept(
    folder: Path, name: str, keys: list[dict[str, Any]], values: dict[str, Any], failure: str | None = None
) -> None:
    asked = [{"system": "protrain", "cell": key} for key in keys]
    rows = [
        Row(
            experiment=name, asked=one, outcome="error" if failure else "ok", figures={"value": values},
            provenance="test", commit=None, seed=0, reason=failure,
        )
        for one in asked
    ]  # fmt: skip
    (folder / f"{name}.jsonl").write_text(rows_to_text(rows))


def test_pictures_show_every_case_and_refuse_failures(tmp_path: Path) -> None:
    gains = {"search": 1.1, "freer layout": 1.0, "bound": 0.9}
    kept(tmp_path, "a", [{"case": case, "link": link} for case in ("one", "uneven: two") for link in LINKS], gains)
    left, right = freedom_figure(drawn(tmp_path, "a"), LINKS).axes
    (line, *_), (other, *_) = left.lines, right.lines
    assert (line.get_label(), other.get_label()) == ("one", "two")
    assert np.asarray(line.get_ydata()) == pytest.approx(np.array([10, 10]))
    blocks = dict.fromkeys(["swapping a block", "computing it again", "swapped"], 1)
    blocks |= {f"{name}, with a roomy host": 2 for name in ("swapped", "checkpointed")}
    kept(tmp_path, "b", [{"machine": "A100", "GB/s": rate} for rate in LINKS.values()], blocks)
    assert [len(axes.lines) for axes in crossing_figure(drawn(tmp_path, "b")).axes] == [2, 3]
    kept(tmp_path, "c", [{"case": "one", "link": "PCIe 3"}], gains, "no luck")
    with pytest.raises(InvalidInput, match="no luck"):
        drawn(tmp_path, "c")
