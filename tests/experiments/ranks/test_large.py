"""A large model over a tensor-parallel pipeline: by numbers where it is small, by shapes where it is not."""

from collections.abc import Callable

import msgspec
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from experiments.hardware import read_hardware
from experiments.models.rank import Rank
from experiments.ranks.large import (
    Plan,
    apart,
    arithmetic,
    by_formulas,
    plans_with_arithmetic,
    run_plan,
    run_table,
    stage_table,
)
from experiments.ranks.ledger import OWN, Ledger
from experiments.ranks.megatron import ParallelStage, split_cross_entropy
from experiments.shapes import read_shape
from runtime.ranks import run_ranks
from solvers.ir import InvalidInput
from solvers.workload import Parallelism

SMALL = msgspec.structs.replace(
    read_shape("llama-2-70b"), layers=2, hidden=64, heads=4, kv_heads=2, ffn=160, vocab=96, sequence=32
)


def split_step(tensor: int, words: Tensor) -> Callable[[int], tuple[float, dict[str, Tensor]]]:
    """A step of the small model on `tensor` devices; each gives the loss and all parts of the gradients, in order."""

    def program(number: int) -> tuple[float, dict[str, Tensor]]:
        dist.init_process_group("sim")
        device, group = torch.device("sim", number), dist.group.WORLD
        rank = Rank(shape=SMALL, cut=Parallelism(tensor=tensor, microbatch=1), dtype=torch.float32)
        stage = ParallelStage(rank, device, group)
        fill(stage, number, tensor)
        inputs = words.to(device)
        loss = split_cross_entropy(stage(inputs.unsqueeze(0)), inputs.roll(-1, 0), group)
        loss.backward()  # type: ignore[no-untyped-call]
        found = {name: one.grad.cpu() for name, one in stage.named_parameters() if one.grad is not None}
        return loss.item(), found

    return program


def along(name: str) -> int | None:
    """The dimension in which a parameter is split; None where each device has all of it."""
    if "norm" in name:
        return None
    return 1 if "projection" in name or "fc2" in name else 0


def groups(name: str) -> list[int]:
    """Where rows that are split apart from each other begin: queries, keys, values; gate and value."""
    width = SMALL.hidden // SMALL.heads
    if "qkv" in name:
        return [SMALL.hidden, SMALL.kv_heads * width, SMALL.kv_heads * width]
    return [SMALL.ffn, SMALL.ffn] if "fc1" in name else []


def part(name: str, whole: Tensor, number: int, count: int) -> Tensor:
    dim = along(name)
    if dim is None:
        return whole
    pieces = torch.split(whole, groups(name), dim) if groups(name) else [whole]
    return torch.cat([piece.chunk(count, dim)[number] for piece in pieces], dim)


def fill(stage: ParallelStage, number: int, count: int) -> None:
    """Each device's parts of the same whole weights."""
    for index, (name, parameter) in enumerate(stage.named_parameters()):
        sizes = list(parameter.shape)
        dim = along(name)
        if dim is not None:
            sizes[dim] *= count
        whole = torch.randn(sizes, generator=torch.Generator().manual_seed(index)) * 0.1
        with torch.no_grad():
            parameter.copy_(part(name, whole, number, count))


def test_parts_of_a_model_compute_what_the_whole_computes() -> None:
    words = torch.randint(SMALL.vocab, (SMALL.sequence, 1), generator=torch.Generator().manual_seed(7))
    cluster = read_hardware("sim-cluster")
    [(loss, whole)] = run_ranks(split_step(1, words), 1, hardware=cluster).values
    for number, (found, gradients) in enumerate(run_ranks(split_step(2, words), 2, hardware=cluster).values):
        assert found == pytest.approx(loss, rel=1e-5)
        assert gradients.keys() == whole.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, part(name, whole[name], number, 2), rtol=1e-3, atol=1e-6)


def test_a_large_model_runs_in_what_the_arithmetic_says_and_in_no_byte_less() -> None:
    """Two layers of Llama-2 70B, two devices a layer, two stages; nothing is measured before memory is limited."""
    plan = Plan(layers=2, tensor=2)
    enough, _, short = plans_with_arithmetic(plan)
    rows = [run_plan(plan), run_plan(enough), apart(short)]
    assert [one["outcome"] for one in rows] == ["ok", "ok", "out-of-memory"]
    assert rows[0]["races"] == 0 and rows[0]["losses"] == [1.0, 1.0]
    assert rows[1]["makespan_ns"] == rows[0]["makespan_ns"] and rows[1]["peak_bytes"] == rows[0]["peak_bytes"]
    for stage in range(2):
        terms = arithmetic(plan, stage)
        assert rows[0]["peak_bytes"][2 * stage : 2 * stage + 2] == [terms.peak] * 2
        counts = 512 * (7 + stage)  # a block for each parameter's count of steps
        assert terms.static == 8 * rows[0]["parameters"][2 * stage] + counts
        assert by_formulas(plan, stage) == pytest.approx(terms.peak, rel=0.03)
    assert f"of {arithmetic(plan, 1).peak - 512} bytes are in use" in rows[2]["said"]
    assert "| 1 | 2 to 3 |" in stage_table(plan, rows[0])
    assert run_table(rows, ["a", "b", "c"]).count("out-of-memory") == 1


@pytest.mark.parametrize(
    "plan",
    [
        Plan(shape="llama-2-7b", layers=4, tensor=1, pipeline=4, microbatches=5, sequence=256),  # stages in the middle
        Plan(shape="llama-2-13b", layers=2, tensor=2, pipeline=2, microbatches=3, sequence=2048),  # most: in the loss
        Plan(layers=1, tensor=8, pipeline=1, microbatches=2, sequence=512),  # first and last, a head of keys a rank
    ],
)
def test_the_arithmetic_is_right_to_the_byte_on_other_plans(plan: Plan) -> None:
    found = run_plan(plan)["peak_bytes"]
    assert found == [arithmetic(plan, rank // plan.tensor).peak for rank in range(plan.ranks)]


def test_the_arithmetic_is_of_one_kind_of_layers() -> None:
    with pytest.raises(InvalidInput, match="choose one of Llama's layers"):
        arithmetic(Plan(shape="gpt-7b", layers=4), 0)
    with pytest.raises(InvalidInput, match="give a longer one"):
        arithmetic(Plan(layers=4, sequence=128), 0)
    with pytest.raises(InvalidInput, match="two heads or more"):
        arithmetic(Plan(shape="llama-2-7b", layers=4, tensor=32), 0)


def test_a_ledger_remembers_the_moment_when_most_was_in_use() -> None:
    ledger = Ledger()
    ledger.make("first", {"a": 513, "b": 1})
    ledger.make("second", {"c": 512}, 100)
    assert (ledger.most, ledger.kernel) == (1024 + 512 + 512 + 100, "second")
    ledger.free("a", "nothing")
    ledger.make("third", {"c": 512})  # the old one goes only when the new one is there: 512 + 512 + 512
    ledger.rename("c", "b")
    ledger.make("fourth", {"d": 1024 + 512})
    assert ledger.most == 2148 and ledger.at_most == {"a": 1024, "b": 512, "c": 512, OWN: 100}
    ledger.make("fifth", {"e": 512})
    assert (ledger.most, ledger.kernel) == (512 + 1536 + 512, "fifth")
