"""A layout problem made of a profile: its memory model against the profile's own reconstruction."""

import gc
import random
from dataclasses import replace

import pytest
import torch

from experiments.models.gpt import Gpt, GptShape, build_gpt
from experiments.profiled_layout import layout_problem
from experiments.protrain.peaks import policy_mixes
from runtime.device import SimDevice, use_sim
from runtime.profile.memory import MemoryProfile, activation_peak_bytes, profile_memory
from solvers.check.layout.judge import device_peak
from solvers.ir.layout import LayoutPlan, LayoutProblem, Policy
from solvers.layout.make import Rank, Sizes
from tests.accelerators import prepare_sim

REFUSED = prepare_sim()
SHAPE = GptShape(layers=6, width=64, context=64, batch=4, tied=True)


@pytest.fixture
def sim() -> SimDevice:
    if REFUSED is not None:
        pytest.skip(REFUSED)
    return use_sim()


def profiled(sim: SimDevice) -> tuple[MemoryProfile, LayoutProblem]:
    torch.manual_seed(0)
    work = build_gpt(SHAPE, sim.device)
    profile = profile_memory(work.model, work.step, sim.device, optimizer=work.optimizer)
    problem = layout_problem(profile, sim.hardware, Rank(host_bytes=1 << 30), context_bytes=0, sizes=Sizes(4, 2.0))
    return profile, problem


def test_blocks_chunks_and_ends(sim: SimDevice) -> None:
    gc.collect()
    others = torch.accelerator.memory_allocated(sim.device)  # of other tests in this process
    profile, problem = profiled(sim)
    names = ["first", *(f"blocks.{number}" for number in range(6)), "last"]
    assert [block.name for block in problem.blocks] == names
    assert [block.choice for block in problem.blocks] == [False, *[True] * 6, False]
    assert problem.blocks[0].chunks[0] == problem.blocks[-1].chunks[0] == 0  # the tied table of words
    packed = sum(parameter.bytes for parameter in profile.parameters)
    assert problem.chunk_bytes * len(problem.chunks) >= packed
    assert sum(chunk.persistent_bytes for chunk in problem.chunks) == 2 * packed  # Adam's moments
    assert problem.fixed_bytes == profile.fixed_bytes == others + 2 * 4 * 64 * 8  # tokens and targets
    assert all(block.forward_us > 0 and block.backward_us > 0 for block in problem.blocks)


def test_its_memory_model_is_safe_and_close_to_the_reconstruction(sim: SimDevice) -> None:
    """One transient a block and pass stands for a whole curve: never less than the trace says, and little more."""
    profile, problem = profiled(sim)
    everything = tuple(range(len(problem.chunks)))
    chunks = sum(problem.chunk_bytes + chunk.persistent_bytes for chunk in problem.chunks)
    for policies in policy_mixes(6, 40, random.Random(0)):
        plan = LayoutPlan(persistent=everything, buffers=0, policies=("keep", *policies, "keep"))
        modelled = device_peak(problem, plan)[0] - chunks
        traced = activation_peak_bytes(profile, policies, problem.interval)
        assert traced <= modelled <= 1.05 * traced, policies


def test_frozen_first_blocks_have_no_choice(sim: SimDevice) -> None:
    torch.manual_seed(0)
    work = build_gpt(replace(SHAPE, tied=False), sim.device)
    assert isinstance(work.model, Gpt)
    work.model.positions.requires_grad_(False)
    for module in (work.model.tokens, *list(work.model.blocks)[:3]):
        module.requires_grad_(False)
    profile = profile_memory(work.model, work.step, sim.device, optimizer=work.optimizer)
    problem = layout_problem(profile, sim.hardware, Rank(host_bytes=1 << 30), context_bytes=0, sizes=Sizes(4, 2.0))
    assert [block.choice for block in problem.blocks] == [False, *[False] * 3, *[True] * 3, False]
    still = {index for block in problem.blocks[:4] for index in block.chunks}
    assert [chunk.trainable for chunk in problem.chunks] == [index not in still for index in range(len(problem.chunks))]
    everything = tuple(range(len(problem.chunks)))
    chunks = sum(problem.chunk_bytes + chunk.persistent_bytes for chunk in problem.chunks)
    kept: tuple[Policy, ...] = ("keep",) * 3
    for policies in policy_mixes(3, 12, random.Random(0)):
        plan = LayoutPlan(persistent=everything, buffers=0, policies=("keep", *kept, *policies, "keep"))
        modelled = device_peak(problem, plan)[0] - chunks
        traced = activation_peak_bytes(profile, (*kept, *policies), problem.interval)
        assert traced <= modelled <= 1.06 * traced, policies  # 1.0544 found
