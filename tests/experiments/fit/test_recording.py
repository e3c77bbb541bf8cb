"""A program's requests as they are recorded on the simulated device: complete, and the device's own peaks."""

from collections import Counter
from typing import ClassVar

import pytest
import torch

from experiments.fit.judge import allocated_peak, where_of
from experiments.fit.recording import POLICIES, Numbering, record
from experiments.hardware import read_hardware
from experiments.models import GptShape, Workload
from runtime.device import use_sim
from runtime.profile import Request
from solvers.ir import InvalidInput
from solvers.timeline.segments import held_before

pytestmark = pytest.mark.usefixtures("plain_sim")
SMALL = GptShape(layers=2, width=64, heads=2, context=64, batch=4)
SIM = read_hardware("sim-small")


def test_the_replayed_peak_is_the_device_s_own() -> None:
    recording = record(SMALL, "small", SIM)
    trace = recording.trace
    assert recording.remarks == ()
    device = use_sim(SIM, races="off").device
    workload = SMALL.build(device)
    peaks = []
    for _ in range(3):
        torch.accelerator.reset_peak_memory_stats(device)
        workload.step()
        peaks.append(torch.accelerator.max_memory_allocated(device))
    assert allocated_peak(trace.events) == max(peaks)
    assert where_of(trace).bytes == max(trace.graph.memory_bytes) == peaks[-1]
    assert sum(where_of(trace).bytes_by_kind.values()) == peaks[-1]
    assert "after 2 warm-up steps" in trace.graph.source


def test_what_is_held_between_steps_is_parameters_states_and_the_data() -> None:
    trace = record(SMALL, "small", SIM).trace
    held = held_before(trace.events, trace.step_begin)
    of = {kind: sum(e.bytes for e in held if trace.kinds.get(e.block) == kind) for kind in set(trace.kinds.values())}
    device = use_sim(SIM, races="off").device
    workload = SMALL.build(device)
    parameters = [one.untyped_storage() for one in workload.model.parameters()]
    assert of["parameters"] == sum(-(-one.nbytes() // 512) * 512 for one in parameters)
    assert 2 * of["parameters"] <= of["optimizer states"] < 2.2 * of["parameters"], "Adam's two moments, and steps"
    assert of["gradients"] >= of["parameters"] * 0.9, "gradients of the step before, freed by the next zero_grad"


def test_recomputing_needs_less() -> None:
    plain, full, some = (
        record(SMALL, "small", SIM, POLICIES[policy]).trace for policy in ("plain", "full", "selective")
    )
    assert allocated_peak(full.events) < allocated_peak(some.events) < allocated_peak(plain.events)


@pytest.mark.parametrize("policy", ["full", "selective"])
def test_what_a_policy_runs_again(policy: str) -> None:
    """Of two blocks with four linear layers and attention each: all again, or none of these and what is between."""

    def kernels(policy: str) -> Counter[str]:
        sim = use_sim(SIM, races="off")
        workload = SMALL.build(sim.device)
        with POLICIES[policy](workload.model, sim.device):
            sim.set_tracing(True)
            workload.step()
            found = Counter(record.kind for record in sim.trace())
            sim.set_tracing(False)
        return found

    plain, again = kernels("plain"), kernels(policy)
    more = {kind: again[kind] - plain[kind] for kind in ("matmul", "attention")}
    assert more == ({"matmul": 8, "attention": 2} if policy == "full" else {"matmul": 0, "attention": 0})
    assert again["elementwise"] > plain["elementwise"]


def test_training_is_bit_identical_under_every_policy() -> None:
    losses: dict[str, list[float]] = {}
    for policy in POLICIES:
        device = use_sim(SIM, races="off").device
        workload = GptShape(layers=2, width=64, heads=2, context=64, batch=4, dropout=0.1).build(device)
        with POLICIES[policy](workload.model, device):
            losses[policy] = [float(workload.step()) for _ in range(3)]
    assert losses["full"] == losses["selective"] == losses["plain"]


class Bare:
    """A model without repeated blocks, whose step runs one operator more each time."""

    recomputes: ClassVar[bool] = False

    def build(self, device: torch.device, *, recompute: bool = False) -> Workload:
        model = torch.nn.Linear(256, 256).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.randn(256, 256).to(device)
        calls: list[int] = []

        def step() -> torch.Tensor:
            calls.append(1)
            hidden = model(data)
            for _ in calls:
                hidden = hidden + 1
            loss: torch.Tensor = hidden.square().mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss.detach()

        return Workload(model, optimizer, step)


def test_what_is_odd_about_a_program_is_said() -> None:
    with pytest.raises(InvalidInput, match="has no repeated blocks"):
        record(Bare(), "bare", SIM, POLICIES["full"])
    (remark,) = record(Bare(), "bare", SIM).remarks
    assert remark.startswith("the operator sequence differs")


def test_what_was_there_before_is_said_and_not_counted() -> None:
    device = use_sim(SIM).device
    before = torch.zeros(1 << 20, device=device)
    remarks = record(SMALL, "small", SIM).remarks
    assert remarks == ("something was on the device before the model was built, and is not counted",)
    del before


def test_blocks_get_numbers_of_their_own() -> None:
    """Address 8 is used twice, by two blocks; 24 was never seen to be taken."""
    numbering = Numbering()
    first = numbering.events((Request(8, 512, None, 0), Request(8, -512, None, 0), Request(8, 1024, 3, 0)))
    assert [event.block for event in first] == [0, 0, 1]
    second = numbering.events((Request(24, -512, None, 0), Request(16, 512, 4, 9)))
    assert [(event.block, event.bytes, event.stream) for event in second] == [(2, 512, 9)]
    assert (numbering.taken, numbering.known, numbering.strangers) == ({1: 2}, [False, True], 1)
