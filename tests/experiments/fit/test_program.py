"""A user's step is recorded by shapes alone, and with bytes where it needs numbers."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.fit import program, recording
from experiments.fit.judge import Asked, Budget
from experiments.fit.program import READS_NUMBERS, SIZED_BY_DATA, program_rows, recorded_program
from experiments.fit.recording import Recording, record
from experiments.fit.show import _fits
from experiments.hardware import read_hardware
from experiments.models.own import OwnModel
from runtime.device import use_sim
from solvers.ir.errors import InvalidInput
from solvers.ir.solution import Limits
from solvers.timeline.segments import Event
from tests.experiments.fit import convolving

pytestmark = pytest.mark.usefixtures("plain_sim")
SIM = read_hardware("sim-small")
OWN = """
import torch


def build(device, width=256, chosen=False, reads=False):
    model = torch.nn.Linear(width, width, device=device)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(64, width, device=device)

    def step():
        out = model(data)
        loss = (out[out > 0] if chosen else out).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if not reads or loss.item() != 1:
            optimizer.step()
        return loss

    return model, optimizer, step


def huge(device):
    return build(device, 60000)


def chosen(device):
    return build(device, chosen=True)


def huge_chosen(device):
    return build(device, 60000, chosen=True)


def reading(device):
    return build(device, reads=True)


def huge_reading(device):
    return build(device, 60000, reads=True)
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_program.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_model_larger_than_this_machine_is_recorded() -> None:
    """14.4 GB of weights, with gradients and two moments."""
    recording = recorded_program("own_program:huge", SIM)
    assert max(recording.trace.graph.memory_bytes) > 4 * 4 * 60000**2
    assert READS_NUMBERS in recorded_program("own_program:huge_reading", SIM).remarks


def test_bytes_that_this_machine_does_not_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (recording, program):
        monkeypatch.setattr(where, "memory_left_bytes", lambda: 1 << 20)
    with pytest.raises(InvalidInput, match=r"need more than the 1048576 bytes \(1.00 MiB\) that this machine has left"):
        recorded_program("own_program:chosen", SIM)
    with pytest.raises(InvalidInput, match="that this machine has left"):
        recorded_program("own_program:huge_chosen", SIM)
    monkeypatch.undo()
    assert 1 << 20 < recording.memory_left_bytes() < 1 << 50


@pytest.mark.parametrize("name", ["build", "chosen", "reading"])
def test_the_trace_is_that_of_the_step_with_bytes(name: str) -> None:
    """A step that needs numbers is run with bytes, and one whose sizes depend on them says so."""
    factory = f"own_program:{name}"
    found, real = recorded_program(factory, SIM), record(OwnModel(factory=factory), factory, SIM)
    assert [one.name for one in found.trace.graph.ops] == [one.name for one in real.trace.graph.ops]
    assert max(found.trace.graph.memory_bytes) == max(real.trace.graph.memory_bytes)
    assert set(found.remarks) - set(real.remarks) == ({SIZED_BY_DATA} if name == "chosen" else set())
    assert not use_sim(SIM).shapes_only


def test_a_planned_step_uses_the_budget_and_runs_less_again_than_a_full_one() -> None:
    budget = Budget(60 << 20)
    asked = Asked(SIM, ("plain", "full", "planned"), "greedy-swap", Limits())
    factory = "experiments.models.gpt:demo"
    plain, full, planned = program_rows(factory, asked, recorded_program(factory, SIM), budget)
    assert (plain.fits, full.fits, planned.fits) == (False, True, True)
    assert planned.step_us is not None and full.step_us is not None and plain.step_us is not None
    assert plain.step_us < planned.step_us < full.step_us
    assert planned.allocated_bytes is not None and full.allocated_bytes is not None
    assert full.allocated_bytes < planned.allocated_bytes <= 60 << 20
    assert planned.solver == "heu" and planned.plan_budget_bytes is not None


def test_a_budget_that_no_plan_keeps_is_said_with_the_least_one() -> None:
    asked = Asked(SIM, ("planned",), "greedy-swap", Limits())
    factory = "experiments.models.gpt:demo"
    (row,) = program_rows(factory, asked, recorded_program(factory, SIM), Budget(20 << 20))
    assert (row.fits, row.fits_allocated) == (False, False) and row.reason is not None
    assert f"the least feasible one {row.least_allocated_bytes}" in row.reason
    assert row.margin_allocated_bytes == (20 << 20) - (row.least_allocated_bytes or 0) < 0


@pytest.mark.parametrize("name", ["hourglass", "adversaries"])
def test_what_kernels_take_meanwhile_is_counted(name: str) -> None:
    """By shapes alone one fitted in a segment too few, and the other asked for 20 MiB more than it ever holds."""
    factory = f"{convolving.__name__}:{name}"
    asked = Asked(SIM, ("plain",), "greedy-swap", Limits())
    (row,) = program_rows(factory, asked, recorded_program(factory, SIM), Budget(1 << 30))
    assert row.least_reserved_bytes is not None and not row.estimated
    assert trains(name, row.least_reserved_bytes)
    assert not trains(name, row.least_reserved_bytes - (2 << 20))


def trains(name: str, capacity_bytes: int) -> bool:
    """Whether it trains for four steps on a device with so much memory, in segments."""
    gc.collect()
    use_sim(SIM, capacity_bytes=capacity_bytes, allocator="caching", races="off")
    try:
        _, _, step = getattr(convolving, name)(torch.device("sim"))
        for _ in range(4):
            step()
    except torch.OutOfMemoryError:
        return False
    finally:
        gc.collect()
    return True


def test_what_is_a_guess_says_so_in_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step too large to be run with bytes: yes and no are by estimate."""
    monkeypatch.setattr(program, "SMALL_BYTES", 0)
    factory = f"{convolving.__name__}:hourglass"
    recording = recorded_program(factory, SIM)
    for budget in (Budget(1 << 30), Budget(2 << 20)):
        asked = Asked(SIM, ("plain", "swap"), "greedy-swap", Limits())
        rows = program_rows(factory, asked, recording, budget)
        assert all(row.estimated for row in rows)
        assert all(_fits(row).endswith(", by estimate") for row in rows)


def test_a_plan_that_keeps_everything_is_among_those_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each session takes some MiB beside the plain step, which fits."""
    factory = f"{convolving.__name__}:hourglass"
    plain = recorded_program(factory, SIM)

    def greedy(*given: object) -> Recording:
        trace = plain.trace
        more = Event(1 + max(event.block for event in trace.events), 40 << 20)
        return replace(plain, trace=replace(trace, events=(more, *trace.events), step_begin=trace.step_begin + 1))

    budgets: list[int] = []
    monkeypatch.setattr(program, "recorded_program", greedy)
    monkeypatch.setattr(program, "planned", budgets.append)
    asked = Asked(SIM, ("plain", "planned"), "greedy-swap", Limits())
    whole, planned = program_rows(factory, asked, plain, Budget(40 << 20))
    assert whole.fits and planned.fits and planned.step_us == whole.step_us
    assert planned.remarks[-1].startswith(program.KEEPS_ALL)
    assert not any(row.fits for row in program_rows(factory, asked, plain, Budget(20 << 20)))
    assert min(budgets) > 0, "less than nothing is never tried"
