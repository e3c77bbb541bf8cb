"""Layout problems from shapes: every figure by hand, and what is refused."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from solvers.ir import InvalidInput, LayoutProblem
from solvers.ir.codec import problem_from_raw, problem_to_raw
from solvers.layout.assumptions import CONTEXT_BYTES
from solvers.layout.blocks import BlockCosts
from solvers.layout.chunks import Chunk
from solvers.layout.make import Rank, Updates, problem_from_shape, swap_interval
from solvers.layout.moves import Moves
from solvers.layout.shapes import shape_parameters
from solvers.workload import Parallelism, embedding_extra, head_extra, megatron_layer

CARDS, A100 = read_hardware("protrain-3090"), read_hardware("protrain-a100")
GPT = read_shape("gpt2-10b")


def row_d(**changes: object) -> LayoutProblem:
    asked: dict[str, Any] = {"ranks": 4, "batch": 8, **changes}
    step = {name: asked.pop(name) for name in ("batch", "sequence") if name in asked}
    return problem_from_shape(GPT, CARDS, Rank(**asked), **step)


def test_the_blocks_of_row_d() -> None:
    """GPT-2 10B, two samples a rank: the layer of the workload, between an embedding and a head without a choice."""
    problem = row_d()
    cut = Parallelism(microbatch=2)
    layer, first, last = megatron_layer(GPT, cut, CARDS), embedding_extra(GPT, cut, CARDS), head_extra(GPT, cut, CARDS)
    assert [block.choice for block in problem.blocks] == [False, *[True] * 48, False]
    middle = problem.blocks[20]
    assert (middle.forward_us, middle.backward_us) == (layer.forward_us, layer.backward_us)
    s, b, h, a = 1024, 2, 4096, 32
    assert middle.activation_bytes == s * b * h * (34 + 5 * a * s // h) and middle.input_bytes == 2 * s * b * h
    assert problem.blocks[0].forward_us == first.forward_us
    assert problem.blocks[-1].activation_bytes == last.activation_bytes == 4 * s * b * (h + 50257)
    assert problem.fixed_bytes == s * b * (16 + 2 * 50257) + CONTEXT_BYTES
    rate = 15.8e9
    assert middle.swap_out_us == middle.swap_in_us == pytest.approx(middle.activation_bytes / rate * 1e6 + 8, abs=1)
    assert problem.interval == -(-middle.swap_out_us // middle.forward_us) == 2


def test_the_chunks_of_row_d() -> None:
    """393 MiB: the word table of 206 M parameters decides. 49 chunks, as in the paper."""
    problem = row_d()
    assert problem.chunk_bytes == 393 << 20 and len(problem.chunks) == 49
    assert [n for n, block in enumerate(problem.blocks) if 0 in block.chunks] == [0, 49]  # the tied table
    chunk, size = problem.chunks[5], problem.chunk_bytes
    assert chunk.load_us == chunk.offload_us == pytest.approx(size / 4 / 15.8e9 * 1e6 + 8, abs=1)
    assert chunk.gather_us == chunk.reduce_us == pytest.approx(3 / 4 * size / 11.85e9 * 1e6 + 24, abs=1)
    assert chunk.allreduce_us == 2 * chunk.gather_us
    parameters = sum(one.bytes for one in shape_parameters(GPT)) // 2
    states = [chunk.persistent_bytes for chunk in problem.chunks]
    assert 12 * parameters <= 4 * sum(states) < 12 * parameters + 4 * 49
    assert [chunk.host_bytes for chunk in problem.chunks] == states
    assert sum(chunk.cpu_update_us for chunk in problem.chunks) == pytest.approx(parameters / 4e9 * 1e6, rel=1e-3)
    moved = 28 * parameters / 4 / (0.8 * 936e9)
    assert sum(chunk.device_update_us for chunk in problem.chunks) == pytest.approx(moved * 1e6, rel=1e-3)


def test_memory_is_the_machine_s_unless_given() -> None:
    problem = row_d()
    assert (problem.device_bytes, problem.host_bytes) == (24 << 30, (384 << 30) // 4)
    less = row_d(device_bytes=10**9, host_bytes=8 * 10**9)
    assert (less.device_bytes, less.host_bytes) == (10**9, 2 * 10**9)
    assert msgspec.structs.replace(less, device_bytes=24 << 30, host_bytes=96 << 30) == problem


def test_one_rank_exchanges_nothing_and_holds_everything() -> None:
    alone, four = row_d(ranks=1, batch=2), row_d()
    assert all(chunk.gather_us == chunk.reduce_us == chunk.allreduce_us == 0 for chunk in alone.chunks)
    for one, quarter in zip(alone.chunks, four.chunks, strict=True):
        assert one.persistent_bytes == pytest.approx(4 * quarter.persistent_bytes, abs=4)
        assert one.load_us > 3.9 * quarter.load_us
        assert one.cpu_update_us == quarter.cpu_update_us  # the ranks share the processors
    assert [b.activation_bytes for b in alone.blocks] == [b.activation_bytes for b in four.blocks]


def test_several_hosts_share_what_each_holds() -> None:
    """175B on 16 GPUs (ProTrain §5.5): a host updates a quarter of the parameters."""
    shape = read_shape("gpt-175b")
    problem = problem_from_shape(shape, read_hardware("protrain-a100-16"), Rank(ranks=16, hosts=4), batch=256)
    assert problem.ranks == 16 and problem.host_bytes == (1 << 40) // 4
    assert sum(c.cpu_update_us for c in problem.chunks) == pytest.approx(shape.parameters() / 16e9 * 1e6, rel=1e-3)
    assert sum(c.host_bytes for c in problem.chunks) == pytest.approx(12 * shape.parameters() / 16, rel=1e-6)
    assert "on 4 hosts" in problem.name


def test_a_longer_sequence_and_a_larger_batch_cost_more() -> None:
    small, longer, larger = row_d(), row_d(sequence=2048), row_d(batch=16)
    for other in (longer, larger):
        assert other.fixed_bytes > small.fixed_bytes
        for one, more in zip(small.blocks, other.blocks, strict=True):
            assert more.forward_us > one.forward_us and more.backward_us > one.backward_us
            assert more.activation_bytes >= 2 * one.activation_bytes
            assert more.forward_transient_bytes >= 2 * one.forward_transient_bytes
    assert longer.blocks[1].activation_bytes > larger.blocks[1].activation_bytes  # scores grow with the square


@pytest.mark.parametrize("name", ["mistral-7b", "opt-13b", "llama-2-13b", "gpt2-15b", "gpt2-40b", "llama-34b"])
@pytest.mark.parametrize("machine", [CARDS, A100], ids=lambda machine: machine.name)
def test_the_models_of_table_1_come_back_from_their_files(name: str, machine: object) -> None:
    problem = problem_from_shape(read_shape(name), machine, Rank(ranks=4), batch=4)  # type: ignore[arg-type]
    assert problem_from_raw(problem_to_raw(problem), "test") == problem
    waste = 1 - 2 * read_shape(name).parameters() / (problem.chunk_bytes * len(problem.chunks))
    assert 0 <= waste <= 0.05  # positions beyond the sequence would be below 0


def test_chunks_of_a_given_size_and_updates_that_wait() -> None:
    problem = row_d(chunk_bytes=1 << 30, overlap_update=False, cpu_updates_per_s=2 * 10**9)
    assert problem.chunk_bytes == 1 << 30 and len(problem.chunks) == 20 and not problem.overlap_update
    assert sum(c.cpu_update_us for c in problem.chunks) == pytest.approx(GPT.parameters() / 2e9 * 1e6, rel=1e-3)


def test_the_swap_interval_hides_one_swap_out_behind_the_blocks_until_the_next() -> None:
    """15.8 GB/s and 8 us: 158 MB take 10,008 us."""
    moves = Moves.of(CARDS, 1)
    block = BlockCosts(5000, 1, 158 * 10**6, 0, 0, 0)
    assert swap_interval([block], moves) == 3  # two blocks take 10,000 us
    assert swap_interval([replace(block, forward_us=5004)], moves) == 2
    assert swap_interval([replace(block, forward_us=10**6)], moves) == 1
    assert swap_interval([replace(block, forward_us=0)], moves) == 10_008
    assert swap_interval([block, block, replace(block, activation_bytes=10**12)], moves) == 3  # the typical block
    assert swap_interval([], moves) == 1


def test_updates_of_a_share() -> None:
    chunk = Chunk((0,), 8 * 10**6, (0,), trainable=True)
    updates = Updates(parameter_bytes=4, state_bytes=2.0, cpu_per_s=10**9)
    assert updates.cpu_us(chunk, Moves.of(CARDS, 1)) == updates.cpu_us(chunk, Moves.of(CARDS, 4)) == 2000
    hosts = Moves.of(read_hardware("protrain-a100-16"), 8, 2)
    assert updates.cpu_us(chunk, hosts) == 1000


def test_bad_numbers_are_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidInput, match="batch is 6 for 4 ranks: give a multiple of the ranks"):
        row_d(batch=6)
    with pytest.raises(InvalidInput, match="batch is 0"):
        row_d(batch=0)
    with pytest.raises(InvalidInput, match="does not say how much memory a host has"):
        problem_from_shape(GPT, read_hardware("a100-sxm-80"), Rank(ranks=1), batch=1)
    with pytest.raises(InvalidInput, match="cpu_updates_per_s is 0: give at least 1"):
        row_d(cpu_updates_per_s=0)
    with pytest.raises(InvalidInput, match="'word table' takes 411705344 bytes, but a chunk only 1000000"):
        row_d(chunk_bytes=10**6)
    assert problem_from_shape(GPT, read_hardware("a100-sxm-80"), Rank(ranks=1, host_bytes=1), batch=1).host_bytes == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layers": 20_000}, "has 20000 layers, but a layout is planned for at most 9998"),
        ({"layers": 10**15}, f"has {10**15} layers"),
        ({"layers": 2, "experts": 10**6}, "has 2000000 experts in all layers, but a layout is planned for at most 100"),
    ],
)
def test_a_shape_that_is_a_slip_of_the_pen_is_refused_before_anything_is_made(
    changes: dict[str, int], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        problem_from_shape(msgspec.structs.replace(GPT, **changes), CARDS, Rank(ranks=4), batch=8)
