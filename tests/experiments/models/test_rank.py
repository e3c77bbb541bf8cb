"""One rank of a transformer: what it keeps is what the formulas of solvers/workload say, on any shape and cut."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from experiments.models.rank import Rank
from experiments.rank_profiles import CASES, Case, formula, kept_bytes, profile_case, table
from experiments.shapes import read_shape
from runtime.device import use_sim
from runtime.device.native import why_missing
from runtime.profile import profile_step
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.workload import ModelShape, Parallelism

GPT = ModelShape(
    name="small GPT", layers=4, hidden=64, heads=4, kv_heads=4, ffn=256, vocab=96, sequence=32, dropout=True
)
LLAMA = ModelShape(
    name="small Llama", layers=4, hidden=64, heads=4, kv_heads=2, ffn=160, vocab=96, sequence=32, gated=True,
    tied_embeddings=False, dropout=False, bias=False, positions="rotary", norm="rmsnorm",
)  # fmt: skip
CUTS = [(1, 1, 0), (2, 1, 0), (2, 2, 0), (1, 2, 1), (2, 4, 2)]


@pytest.fixture(autouse=True)
def with_bytes_again() -> Iterator[None]:
    """Whatever a test did, the next one has bytes."""
    reason = why_missing("runtime._sim")
    if reason is not None:
        pytest.skip(reason)
    yield
    gc.collect()
    use_sim()


def profiled(rank: Rank, *, shapes_only: bool) -> OpGraph:
    gc.collect()
    sim = use_sim(shapes_only=shapes_only)
    model, optimizer, step = rank.build(sim.device)
    return profile_step(step, sim.device, model=model, optimizer=optimizer, warmup=1)


def trained(rank: Rank) -> list[float]:
    step = rank.build(use_sim().device).step
    return [step().item() for _ in range(8)]


@pytest.mark.parametrize(("tensor", "stages", "stage"), CUTS)
@pytest.mark.parametrize("shape", [GPT, LLAMA], ids=lambda shape: shape.name)
def test_a_rank_keeps_what_the_formula_says_to_the_byte(
    shape: ModelShape, tensor: int, stages: int, stage: int
) -> None:
    case = Case(shape.name, tensor, stages, stage, microbatch=2)
    closed = formula(shape, case)
    graph = profiled(Rank(shape=shape, cut=case.cut, stage=stage), shapes_only=True)
    assert kept_bytes(graph) == closed.kept_bytes + closed.left_out_bytes


@pytest.mark.parametrize("shape", [GPT, LLAMA], ids=lambda shape: shape.name)
def test_a_rank_with_numbers_trains_and_is_the_one_with_shapes(shape: ModelShape) -> None:
    """Single precision, whose kernels take nothing that the table would have to guess."""
    rank = Rank(shape=shape, cut=Parallelism(tensor=1, microbatch=2), dtype=torch.float32)
    losses = trained(rank)
    assert losses[-1] < losses[0] and all(loss == loss for loss in losses)
    real, seen = (profiled(rank, shapes_only=mode) for mode in (False, True))
    assert msgspec.structs.replace(seen, source=real.source) == real


def test_layers_of_a_large_model_by_shapes_alone() -> None:
    """Two of the 80 layers of Llama-2 70B on one of eight devices, in this process."""
    gc.collect()
    shape = msgspec.structs.replace(read_shape("llama-2-70b"), layers=2)
    case = Case("llama-2-70b", 8)
    graph = profiled(Rank(shape=shape, cut=case.cut), shapes_only=True)
    closed = formula(shape, case)
    assert kept_bytes(graph) == closed.kept_bytes + closed.left_out_bytes > 1 << 30


def test_a_case_is_profiled_and_shown() -> None:
    row = profile_case(Case("gpt-300m", 2, 24, 23))
    assert row["kept_bytes"] == int(row["formula_bytes"]) + int(row["left_out_bytes"])
    assert 0 < float(row["step_s"]) < 30 and int(row["operators"]) > 60
    assert "| gpt-300m | 2 × 24 | 23 | " in table([row])
    assert {"llama-2-7b", "llama-2-13b", "llama-2-70b", "gpt-175b"} == {case.shape for case in CASES}


def test_ranks_that_are_not_built() -> None:
    with pytest.raises(InvalidInput, match="flash attention or experts"):
        Rank(shape=read_shape("llama-3-8b"), cut=Parallelism(microbatch=1))
    with pytest.raises(InvalidInput, match="stage 2 of 2 stages and 4 layers"):
        Rank(shape=GPT, cut=Parallelism(pipeline=2, microbatch=1), stage=2)


def test_the_kept_results_are_what_their_rows_say_and_keep_the_promises() -> None:
    """At most 30 s a step and 1 GB, every byte that is kept as the formulas have it."""
    folder = Path(__file__).parents[3] / "experiments" / "results" / "shapes"
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert table(rows) == (folder / "table.md").read_text()
    assert [Case(*(row[field] for field in Case._fields)) for row in rows] == list(CASES)
    for row, case in zip(rows, CASES, strict=True):
        closed = formula(read_shape(case.shape), case)
        assert row["kept_bytes"] == closed.kept_bytes + closed.left_out_bytes
        assert row["step_s"] <= 30 and row["resident_bytes"] < 1e9
