"""A user's step is recorded by shapes alone, and with bytes where it needs numbers."""

from pathlib import Path

import pytest

from experiments.fit.judge import Asked, Budget
from experiments.fit.program import READS_NUMBERS, SIZED_BY_DATA, program_rows, recorded_program
from experiments.fit.recording import record
from experiments.hardware import read_hardware
from experiments.models.own import OwnModel
from runtime.device import use_sim
from solvers.ir.solution import Limits

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
    assert row.fits is None and row.reason is not None
    assert "the least feasible one" in row.reason
