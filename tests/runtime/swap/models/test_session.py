"""Real programs under a budget that they do not fit: every bit as without it, within it from the first iteration."""

import gc
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

from runtime.device import memory_stats, reset_peak_memory, use_sim
from runtime.device.native import core
from runtime.swap import SessionReport, is_swapped_out, session, swap_out
from runtime.swap.stages import StageSettings
from solvers.ir.errors import InvalidInput
from tests.runtime.swap.models.distributed import DISTRIBUTED, one_rank
from tests.runtime.swap.models.program import Build, Program, Record, record
from tests.runtime.swap.models.zoo import ZOO
from tests.soaking import in_soak

STEPS = 12
SHARE = 0.4
"""How much of what comes and goes in an iteration may be on the device at once, beside what stays."""
SHARES = {"convolution-batchnorm": 0.6}
"""Where a single operator needs more than that at once."""
UNSETTLED = {"opt-eager", "opt-sdpa", "grad-scaler", "validation", "save-and-copy", "exception-in-mid-step"}
"""Their sequences of operators differ every few iterations, so that no policy is made within these steps."""
TWO_LENGTHS = {
    f"{name}-{attention}" for name in ("gpt2", "llama", "mistral", "mixtral", "bert") for attention in ("eager", "sdpa")
}
"""Every third of their batches is shorter: one kind of iterations, whatever their sizes."""
ALIKE = {"gpt2-eager", "llama-sdpa", "mistral-eager", "mixtral-sdpa", "bert-eager"}
"""The same model with the other attention runs in CI."""
LONGER, SOON = 21, StageSettings(warm_up_iterations=1, policies=2)


class Unlimited(NamedTuple):
    """A run without a budget, and the memory that it took: what stays, and the most of all."""

    left: Record
    resting_bytes: int
    peak_bytes: int

    def budget_bytes(self, share: float) -> int:
        return int(self.resting_bytes + share * (self.peak_bytes - self.resting_bytes))


def surroundings(name: str) -> AbstractContextManager[None]:
    return one_rank() if name in DISTRIBUTED else nullcontext()


def losses_of(program: Program, steps: int) -> list[torch.Tensor]:
    return [program.step().cpu() for _ in range(steps)]


def unlimited(build: Build, device: torch.device, steps: int = STEPS) -> Unlimited:
    gc.collect()
    before = memory_stats(device).allocated_bytes
    reset_peak_memory(device)
    program = build(device)
    losses = losses_of(program, steps)
    peak_bytes = memory_stats(device).peak_bytes - before
    left = record(program, losses)
    program.optimizer.zero_grad(set_to_none=True)
    time.sleep(0.02)  # autograd's thread wants the interpreter once more, to drop the graph
    gc.collect()
    return Unlimited(left, memory_stats(device).allocated_bytes - before, peak_bytes)


def limited(
    build: Build, device: torch.device, budget_bytes: int, steps: int = STEPS, stages: StageSettings | None = None
) -> tuple[Record, SessionReport]:
    """The whole program inside one session, from the making of its model on."""
    gc.collect()
    use_sim(races="raise")
    with session(budget=budget_bytes, device=device, stages=stages) as held:
        program = build(device)
        losses = losses_of(program, steps)
        report = held.report()
    return record(program, losses), report


@pytest.mark.parametrize("name", [in_soak(name) if name in ALIKE else name for name in ZOO])
def test_a_program_keeps_its_budget_and_its_bits(name: str, device: torch.device) -> None:
    steps, stages = (LONGER, SOON) if name in TWO_LENGTHS else (STEPS, None)
    with surroundings(name):
        free = unlimited(ZOO[name], device, steps)
        budget_bytes = free.budget_bytes(SHARES.get(name, SHARE))
        left, report = limited(ZOO[name], device, budget_bytes, steps, stages)
    assert left.differences(free.left) == []
    assert report.peak_bytes <= budget_bytes < free.peak_bytes
    assert min(report.counts.swapped_out, report.counts.swapped_in) >= STEPS
    assert (report.stage == "Stable") == (name not in UNSETTLED)
    assert name not in TWO_LENGTHS or report.generations == 1
    assert use_sim().races() == []


@pytest.mark.parametrize("name", ["gpt2-sdpa", "convolution-batchnorm"])
def test_a_session_may_begin_and_end_in_mid_training(name: str, device: torch.device) -> None:
    free = unlimited(ZOO[name], device)
    program = ZOO[name](device)
    losses = losses_of(program, 2)
    with session(budget=free.budget_bytes(SHARES.get(name, SHARE)), device=device) as held:
        losses += losses_of(program, STEPS - 4)
        assert held.report().counts.swapped_out > 0
    losses += losses_of(program, 2)
    assert record(program, losses).differences(free.left) == []


def in_turns(device: torch.device, limits: tuple[int, int] | None) -> tuple[list[Record], list[SessionReport]]:
    """Two programs, the second one inside a step of the first; with limits, each in a session of its own."""
    first, second = (ZOO[name](device) for name in ("bert-sdpa", "gradient-accumulation"))
    losses: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    reports = []
    with ExitStack() as outer, ExitStack() as inner:
        if limits is not None:
            held = outer.enter_context(session(budget=limits[0], device=device, optimizer=first.optimizer))
        losses[0].extend(losses_of(first, 4))
        if limits is not None:
            inside = inner.enter_context(session(budget=limits[1], device=device, optimizer=second.optimizer))
        losses[1].extend(losses_of(second, STEPS))
        reports += [] if limits is None else [inside.report()]
        inner.close()
        losses[0].extend(losses_of(first, STEPS - 4))
        reports += [] if limits is None else [held.report()]
    return [record(first, losses[0]), record(second, losses[1])], reports


def test_programs_with_a_session_each_take_turns(device: torch.device) -> None:
    """The session that was started last limits; the one before goes on where it closes."""
    alone = [unlimited(ZOO[name], device) for name in ("bert-sdpa", "gradient-accumulation")]
    limits = [free.budget_bytes(SHARE) + other.resting_bytes for free, other in zip(alone, alone[::-1], strict=True)]
    expected, _ = in_turns(device, None)
    found, reports = in_turns(device, (limits[0], limits[1]))
    assert [left.differences(other) for left, other in zip(found, expected, strict=True)] == [[], []]
    for report, limit in zip(reports, limits[::-1], strict=True):
        assert report.peak_bytes <= limit
        assert report.counts.swapped_out >= STEPS


def test_sessions_follow_one_another_and_rest(device: torch.device) -> None:
    free = unlimited(ZOO["llama-sdpa"], device)
    budget_bytes = free.budget_bytes(SHARE)
    program = ZOO["llama-sdpa"](device)
    with session(budget=budget_bytes, device=device) as held:
        losses = losses_of(program, 4)
        held.pause()
        losses += losses_of(program, 1)
        held.resume()
        losses += losses_of(program, 3)
    with session(budget=budget_bytes, device=device):
        losses += losses_of(program, STEPS - 8)
    assert record(program, losses).differences(free.left) == []


def test_transformers_saves_a_model_whose_weights_are_away(device: torch.device, tmp_path: Path) -> None:
    """It tells tied weights apart by addresses, so these must not be given out twice."""
    program = ZOO["gpt2-sdpa"](device)
    program.step()
    with session(budget="50%", device=device) as held:
        program.step()
        for parameter in program.model.parameters():
            if not is_swapped_out(parameter):
                swap_out(parameter.detach())
        program.model.save_pretrained(tmp_path)  # type: ignore[operator]
        assert held.active
    loaded = type(program.model).from_pretrained(tmp_path, local_files_only=True)  # type: ignore[attr-defined]
    for name, weight in program.model.state_dict().items():
        assert torch.equal(weight.cpu(), loaded.state_dict()[name])
    assert loaded.lm_head.weight is loaded.transformer.wte.weight


class Uncaught(Exception):
    """Of the program's own."""


def test_an_exception_that_ends_the_session_leaves_a_program_that_trains_on(device: torch.device) -> None:
    free = unlimited(ZOO["gpt2-eager"], device)
    program = ZOO["gpt2-eager"](device)
    state = torch.get_rng_state()
    with pytest.raises(Uncaught), session(budget=free.budget_bytes(SHARE), device=device):
        losses = losses_of(program, 5)
        state = torch.get_rng_state()
        program.model(input_ids=torch.ones(8, 64, dtype=torch.long, device=device))
        raise Uncaught
    assert core.swapped_out_storages() == 0
    torch.set_rng_state(state)
    losses += losses_of(program, STEPS - 5)
    assert record(program, losses).differences(free.left) == []


def test_compiled_code_inside_a_session_is_refused_in_a_sentence(device: torch.device) -> None:
    model = nn.Linear(64, 64).to(device)
    compiled = torch.compile(model, backend="eager")
    data = torch.ones(8, 64, device=device)
    with pytest.raises(InvalidInput, match="is compiled"):
        session(budget="50%", device=device, model=compiled)  # type: ignore[arg-type]
    with session(budget="50%", device=device), pytest.raises(InvalidInput, match="run it uncompiled"):
        compiled(data)
    assert torch.equal(compiled(data).cpu(), model(data).cpu())
