"""Where launches, not kernels, take the time: a joint problem knows of both, and so how long the plain pass takes."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, cast

import pytest
import torch
from torch import nn

from experiments.hardware import read_hardware
from experiments.recompute.models import Trainee
from runtime.device import DEFAULT_HARDWARE, use_sim
from runtime.device.native import core, sim
from runtime.profile.launches import Measured
from runtime.recompute import RecomputeSession
from runtime.recompute.course import Happened
from runtime.recompute.in_turn import NOTHING, joined
from runtime.recompute.joint import JointStep
from runtime.recompute.launches import AHEAD, BlockLaunches, Part
from runtime.recompute.measurement import gathering_calls
from runtime.recompute.together import hardest
from solvers.check.joint.judge import base_us
from solvers.ir.joint import JointOp, JointPlan, JointProblem
from solvers.ir.solution import Limits, Solution, Status
from solvers.ir.swap import SwapLink
from solvers.joint.choice import swap_all
from solvers.joint.draft import plan_of
from solvers.joint.given import given_of
from solvers.joint.swaps import timed
from tests.accelerators import prepared
from tests.runtime.recompute.training import QUICK, Loop, ordinary, trained

__all__ = ["QUICK"]
ROOMY = 1 << 33
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def device() -> torch.device:
    return prepared("sim")


class Mixed(nn.Module):
    """A step with dropout, an in-place operator, tensors of the program between blocks, and one more behind them."""

    def __init__(self, width: int, asks: bool) -> None:
        super().__init__()
        self.asks = asks
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Dropout(0.2), nn.ReLU(inplace=True))
            for _ in range(4)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """A loss to which every block's output adds."""
        added = torch.zeros((), device=hidden.device)
        for block in self.blocks:
            hidden = hidden + block(hidden).tanh()
            if self.asks:
                hidden = hidden * (1.0 if hidden.square().mean().item() < 1e9 else 0.5)
            added = added + hidden.mean()
        return added + hidden.square().mean()


def mixed(width: int, rows: int, asks: bool = False) -> Callable[[torch.device], Trainee]:
    def make(device: torch.device) -> Trainee:
        model = Mixed(width, asks).to(device)
        hidden = torch.randn(rows, width).to(device)
        return Trainee(model, tuple(model.blocks), lambda: model(hidden))

    return make


def looked_at(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
    """A loop that looks at each loss: the host begins each step with nothing launched ahead."""
    loss = ordinary(trainee, optimizer, index)
    assert loss.item() < 1e9
    return loss


def roomy(
    device: torch.device, make: Callable[[torch.device], Trainee], loop: Loop = ordinary
) -> tuple[JointProblem, float]:
    """The problem of a program's pass, and how long that takes under a plan that keeps everything."""
    outcome = trained(device, make, budget=ROOMY, solver="greedy-joint", around=True, loop=loop)
    assert outcome.session is not None
    report, problem = outcome.session.report(), alone(outcome.session)
    assert report.pass_us is not None
    assert report.swapped_out == 0
    return problem, report.pass_us


def alone(session: RecomputeSession) -> JointProblem:
    """The problem of the pass, without what waits behind it."""
    assert isinstance(session.whole, JointStep) and session.whole.pass_alone is not None
    return session.whole.pass_alone


@pytest.mark.parametrize(
    ("width", "rows", "bound"), [(32, 16, "by launches"), (512, 2048, "by kernels"), (160, 1024, "by either")]
)
def test_the_plain_pass_takes_what_the_problem_says(device: torch.device, width: int, rows: int, bound: str) -> None:
    problem, took_us = roomy(device, mixed(width, rows), looked_at)
    kernels, launches = sum(op.time_us for op in problem.ops), sum(op.launch_us for op in problem.ops)
    assert base_us(problem) == pytest.approx(took_us, rel=0.01)
    share = {"by launches": launches, "by kernels": kernels}.get(bound, max(launches, kernels)) / took_us
    assert share < 0.99 if bound == "by either" else 0.99 < share < 1.001
    assert min(kernels, launches) > 0


def test_a_host_that_is_ahead_begins_a_step_with_launches_done(device: torch.device) -> None:
    make = mixed(512, 1024)
    behind, plain_us = roomy(device, make, looked_at)
    ahead, took_us = roomy(device, make)
    assert base_us(behind) == pytest.approx(plain_us, rel=0.01)
    assert base_us(ahead) == pytest.approx(took_us, rel=0.01)
    assert (behind.ops[1].launch_us, ahead.ops[1].launch_us) == (5, 0)
    assert [op.time_us for op in ahead.ops] == [op.time_us for op in behind.ops]


def test_what_another_thread_does_while_a_step_is_read_is_none_of_it(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches, times = core.MemoryLog.launches, [0]

    def meanwhile(log: core.MemoryLog) -> object:
        told = launches(log)
        torch.ones(1, device=device).add_(1)
        times[0] += 1
        return told

    monkeypatch.setattr(core.MemoryLog, "launches", meanwhile)
    problem, took_us = roomy(device, mixed(32, 16), looked_at)
    assert times[0] > 0 and base_us(problem) == pytest.approx(took_us, rel=0.01)


def test_a_host_that_waits_for_numbers_within_the_pass_loses_its_lead(device: torch.device) -> None:
    problem, took_us = roomy(device, mixed(512, 2048, asks=True))
    assert base_us(problem) == pytest.approx(took_us, rel=0.01)
    latency_us = DEFAULT_HARDWARE.links[0].latency_us
    reads = [op.name for op in problem.ops if op.read_us == latency_us]
    # Moves come before the op that stands for the program's own, and behind what it waits for behind the last block.
    assert reads == ["output"] * 2 + ["beside the forward pass", "beside the loss"]
    assert sum(op.read_us for op in problem.ops) == 4 * latency_us
    assert not any(op.host_waits for op in problem.ops)  # none waits where it runs again


class Asking(nn.Module):
    """A block that looks at its largest activation before it goes on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Halves activations that are too large, as none ever is."""
        inner = nn.functional.gelu(self.inward(hidden))
        if inner.detach().abs().max().item() > 1e9:
            inner = inner * 0.5
        return hidden + cast("torch.Tensor", self.outward(inner))


class Routing(nn.Module):
    """A block that sends each row through one of two layers: the host waits for the number of rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(width, 2), nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The expert that each row prefers, and the row itself."""
        chosen, added = self.router(hidden).argmax(-1), torch.zeros_like(hidden)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().flatten()
            added = added.index_add(0, rows, expert(hidden[rows]).tanh())
        return hidden + added


class Comparing(Asking):
    """A block that compares with temporaries of its own before it goes on."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Adds one where both are close, as they never are."""
        inner = self.inward(hidden)
        if torch.allclose(inner.detach(), inner.detach() * 2):
            inner = inner + 1
        return hidden + cast("torch.Tensor", self.outward(nn.functional.gelu(inner)))


class Waiting(nn.Module):
    """A block that does something before its first operator, in the middle and at its end."""

    def __init__(self, width: int, does: Sequence[Callable[[torch.Tensor], object]]) -> None:
        super().__init__()
        self.inward, self.outward, self.does = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), does

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """A residual layer."""
        self.does[0](hidden.detach())
        inner = nn.functional.gelu(self.inward(hidden))
        self.does[1](inner.detach())
        hidden = hidden + cast("torch.Tensor", self.outward(inner))
        self.does[2](hidden.detach())
        return hidden


def follow(tensor: torch.Tensor) -> None:
    """Wait for an event of the stream."""
    event = torch.Event(device=tensor.device)
    event.record()
    event.synchronize()


@dataclass(frozen=True)
class Everything:
    """Answers with the plan by which all that can leave does."""

    def solve(self, problem: JointProblem, limits: Limits, watch: object = None) -> Solution[JointPlan]:
        """Nothing is computed again."""
        given = given_of(problem)
        draft, found = timed(given, swap_all(given))
        return Solution(
            status=Status.FEASIBLE, plan=plan_of(given, draft), solver="everything",
            objective=found.objective_us, base=given.base_us,
        )  # fmt: skip


def nothing(_: torch.Tensor) -> None:
    """Go on."""


def settle(_: torch.Tensor) -> None:
    """Wait for all that the device does."""
    torch.accelerator.synchronize()


ASKING_FIRST = partial(Waiting, does=(lambda given: given[0, 0].item(), nothing, nothing))
LISTING = partial(Waiting, does=(nothing, lambda inner: inner[0].tolist(), nothing))
SETTLING, SETTLING_FIRST = (
    partial(Waiting, does=(nothing, settle, settle)),
    partial(Waiting, does=(settle, nothing, nothing)),
)
FOLLOWING = partial(Waiting, does=(nothing, follow, follow))
PLAIN = partial(Waiting, does=(nothing, nothing, nothing))


class Between(nn.Module):
    """What the program does between two blocks."""

    def __init__(self, does: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.does = does

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The same."""
        self.does(hidden.detach())
        return hidden


@pytest.mark.parametrize("solver", ["joint", "greedy-joint"])
@pytest.mark.parametrize(
    ("block", "share", "told", "between"),
    [
        (Asking, 0.7, {"reads": 4}, nothing),
        (Routing, 0.75, {"waits": 16}, nothing),
        (Comparing, 0.7, {"reads": 4}, nothing),
        (ASKING_FIRST, 0.7, {"reads": 4}, nothing),
        (LISTING, 0.7, {"reads": 4}, nothing),
        (SETTLING, 0.7, {"device": 8}, nothing),
        (SETTLING_FIRST, 0.7, {"device": 4}, nothing),
        (FOLLOWING, 0.7, {"stream": 8}, nothing),
        (PLAIN, 0.6, {"device": 3}, settle),
        (PLAIN, 0.6, {"reads": 3}, lambda hidden: hidden[0, 0].item()),
    ],
)
def test_what_leaves_keeps_the_host_waiting_as_predicted(
    block: Callable[[int], nn.Module],
    share: float,
    told: dict[str, int],
    between: Callable[[torch.Tensor], object],
    solver: str,
) -> None:
    gc.collect()
    device = use_sim(read_hardware("sim-small")).device

    def make(device: torch.device) -> Trainee:
        blocks = [block(128) for _ in range(4)]
        parts = [part for one in blocks for part in (Between(between), one)]
        model = nn.Sequential(*parts[1:]).to(device)
        for parameter in model.parameters():  # rows keep the experts that they have
            parameter.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
        rows = torch.randn(2048, 128).to(device)
        return Trainee(model, tuple(blocks), lambda: model(rows).square().mean())

    try:
        plainly = trained(device, make)
        budget = int(share * max(plainly.peaks[1:]))
        kept = trained(device, make, budget=budget, solver=solver, around=True)
        assert kept.session is not None and kept.equals(plainly)
        report, problem = kept.session.report(), kept.session.problem
    finally:
        gc.collect()
        prepared("sim")
    assert isinstance(problem, JointProblem) and report.predicted_pass_us is not None
    found = {
        "reads": sum(op.read_us > 0 for op in problem.ops),
        "waits": sum(op.host_waits for op in problem.ops),
        **{kind: sum(op.sync == kind for op in problem.ops) for kind in ("stream", "device")},
    }
    assert {kind: count for kind, count in found.items() if count} == told
    assert max(kept.peaks[1:]) <= budget
    assert report.swapped_out > 0 or report.ahead > 0
    assert report.predicted_pass_us == pytest.approx(report.pass_us, rel=0.008)


class Headed(nn.Module):
    """Residual blocks, and a loss around which the program waits: before its first operator, within it, behind it."""

    def __init__(self, width: int, does: Sequence[Callable[[torch.Tensor], object]]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Waiting(width, (nothing, nothing, nothing)) for _ in range(4))
        self.head, self.does = nn.Linear(width, 4 * width), does

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The mean of some log-probabilities."""
        for block in self.blocks:
            hidden = block(hidden)
        self.does[0](hidden.detach())
        scores = self.head(hidden)
        self.does[1](scores.detach())
        loss = -nn.functional.log_softmax(scores, -1)[:, :3].mean()
        self.does[2](loss.detach())
        if loss.requires_grad:
            loss.register_hook(self.does[3])  # type: ignore[no-untyped-call]
        return loss


def read(tensor: torch.Tensor) -> None:
    """Let the host have a number."""
    tensor.flatten()[0].item()


@pytest.mark.parametrize("hardware", ["sim-tiny", "sim-small"])
@pytest.mark.parametrize(
    "does",
    [
        (settle, nothing, nothing, nothing),
        (nothing, settle, nothing, nothing),
        (follow, nothing, read, nothing),
        (read, settle, read, settle),
    ],
)
def test_waits_around_the_loss_keep_what_leaves_as_predicted(
    does: Sequence[Callable[[torch.Tensor], object]], hardware: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything leaves, so that the lane is busy where the program waits for it, and then goes on."""
    monkeypatch.setattr(import_module("runtime.recompute.decisions"), "build_solver", lambda *_: Everything())

    def make(device: torch.device) -> Trainee:
        model = Headed(64, does).to(device)
        rows = torch.randn(512, 64).to(device)
        return Trainee(model, tuple(model.blocks), lambda: model(rows))

    takes_what_was_predicted(hardware, make, 1.0, "joint")


def takes_what_was_predicted(
    hardware: str, make: Callable[[torch.device], Trainee], share: float, solver: str
) -> RecomputeSession:
    """Trained with so much of the plain peak, bit by bit as without a plan, and within 1 % of the predicted time."""
    gc.collect()
    device = use_sim(read_hardware(hardware)).device
    try:
        plainly = trained(device, make)
        budget = int(share * max(plainly.peaks[1:]))
        kept = trained(device, make, budget=budget, solver=solver, around=True)
        assert kept.session is not None and kept.equals(plainly)
        assert max(kept.peaks[1:]) <= budget
        report = kept.session.report()
    finally:
        gc.collect()
        prepared("sim")
    assert report.predicted_pass_us == pytest.approx(report.pass_us, rel=0.01)
    return kept.session


def converted(tensor: torch.Tensor) -> None:
    """Copy to the host what is converted there."""
    tensor.to("cpu", torch.float64)


def gathered(tensor: torch.Tensor) -> None:
    """Copy to the host what lies apart."""
    tensor[:, ::3].cpu()


def sent(tensor: torch.Tensor) -> None:
    """Send it to the host, and go on."""
    tensor.to("cpu", non_blocking=True)


def sent_and_awaited(tensor: torch.Tensor) -> None:
    """Send it to the host, and wait for the stream."""
    sent(tensor)
    follow(tensor)


@pytest.mark.parametrize("hardware", ["sim-tiny", "sim-small"])
@pytest.mark.parametrize(
    "does",
    [
        (nothing, converted, nothing),
        (nothing, gathered, nothing),
        (nothing, sent, nothing),
        (sent, nothing, sent_and_awaited),
    ],
)
def test_what_is_copied_to_the_host_queues_behind_what_leaves(
    does: Sequence[Callable[[torch.Tensor], object]], hardware: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storages leave right behind such a copy, and others before the next one."""
    monkeypatch.setattr(import_module("runtime.recompute.decisions"), "build_solver", lambda *_: Everything())

    def make(device: torch.device) -> Trainee:
        blocks = [Waiting(128, does) for _ in range(4)]
        model = nn.Sequential(*blocks).to(device)
        rows = torch.randn(1024, 128).to(device)
        return Trainee(model, tuple(blocks), lambda: model(rows).square().mean())

    session = takes_what_was_predicted(hardware, make, 1.0, "joint")
    problem = session.problem
    assert isinstance(problem, JointProblem) and session.report().swapped_out > 0
    told = [op.sent_us if sent in does else op.read_us for op in problem.ops if op.sent_us or op.read_us]
    assert len(told) >= 4


class Beside(Waiting):
    """A block that computes something on a stream of its own, and waits for that."""

    def __init__(self, width: int, does: Sequence[Callable[[torch.Tensor], object]]) -> None:
        super().__init__(width, does)
        self.stream: torch.Stream | None = None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """A residual layer."""
        self.stream = self.stream or torch.Stream(device=hidden.device)
        main = torch.accelerator.current_stream()
        inner = nn.functional.gelu(self.inward(hidden))
        self.stream.wait_stream(main)
        with self.stream:
            self.does[0](inner.detach())
        returned = hidden + cast("torch.Tensor", self.outward(inner))
        main.wait_stream(self.stream)
        return returned


@pytest.mark.parametrize("does", [lambda inner: inner.square().sum(), lambda inner: inner[0, 0].item(), sent])
def test_no_time_is_predicted_where_other_streams_work_within_the_pass(
    device: torch.device, does: Callable[[torch.Tensor], object]
) -> None:
    def make(device: torch.device) -> Trainee:
        blocks = [Beside(64, (does,)) for _ in range(4)]
        model = nn.Sequential(*blocks).to(device)
        rows = torch.randn(512, 64).to(device)
        return Trainee(model, tuple(blocks), lambda: model(rows).square().mean())

    outcome = trained(device, make, budget=ROOMY, solver="greedy-joint", around=True)
    assert outcome.session is not None
    report = outcome.session.report()
    assert report.pass_us is not None and report.predicted_pass_us is None


def test_what_takes_memory_to_be_copied_moves_nothing_before() -> None:
    """Of three calls one copies without, one with memory of the device, and one makes something that takes as much."""
    copies = [
        [(call, Happened.NODE, 0, 9, 5), (-1, Happened.ELSE, 0, most, 5), (call, Happened.NODE, 0, 5, 5)]
        for call, most in ((0, 5), (1, 7))
    ]
    made = [(2, Happened.NODE, 0, 5, 5), (2, Happened.MADE, 0, 9, 9), (2, Happened.NODE, 1, 9, 9)]
    ends = [(call, Happened.END, -1, now, now) for call, now in enumerate((5, 5, 9))]
    assert gathering_calls([*copies[0], ends[0], *copies[1], ends[1], *made, ends[2]]) == {1}


class Held(Waiting):
    """A block in whose backward pass something is done: in the middle, and where it begins."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """A residual layer."""
        inner = nn.functional.gelu(self.inward(hidden))
        returned = hidden + cast("torch.Tensor", self.outward(inner))
        for tensor, does in zip((inner, returned), self.does, strict=True):
            if tensor.requires_grad:
                tensor.register_hook(does)  # type: ignore[no-untyped-call]
        return returned


@pytest.mark.parametrize(("solver", "share"), [("everything", 1.0), ("joint", 0.7)])
@pytest.mark.parametrize("does", [(settle, nothing), (settle, read), (follow, settle), (sent, nothing)])
def test_waits_in_a_backward_pass_stand_where_they_are(
    does: Sequence[Callable[[torch.Tensor], object]], solver: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storages return while the host waits for the device in the middle of a block, and behind that."""
    if solver == "everything":
        monkeypatch.setattr(import_module("runtime.recompute.decisions"), "build_solver", lambda *_: Everything())

    def make(device: torch.device) -> Trainee:
        blocks = [Held(64, does) for _ in range(4)]
        model = nn.Sequential(*blocks).to(device)
        rows = torch.randn(512, 64).to(device)
        return Trainee(model, tuple(blocks), lambda: model(rows).square().mean())

    session = takes_what_was_predicted("sim-tiny", make, share, "joint")
    assert all(layer.launches is not None and layer.launches.held for layer in session.layers)


class Asked(dict[Part, Measured]):
    """A call's parts, none of which another call asks for."""

    def get(self, key: Part, default: object = None) -> Any:
        assert key[0] == 1
        return super().get(key, default)


def test_a_block_reads_its_own_parts_and_what_is_not_there_takes_nothing() -> None:
    """Something ran again while the program's second operator behind the block began: that has no part."""
    first, last = Measured(1, 2, 3, 0), Measured(4, 5, 6, 0)
    own = Asked({(1, "behind", 0): first, (1, "behind", 2): last, (1, "node", 1): last, (1, "backward", 0): first})
    own[1, "within", 1] = first._replace(host_waits=1)
    told = BlockLaunches.of({0: Asked(), 1: own, AHEAD[0]: {AHEAD: Measured(0, 7, 0, 0)}}, 1, (0.0, 0.0), 0.0, 2)
    assert told.behind == (first, NOTHING, last) and told.nodes == (NOTHING, last)
    assert told.backward == (first, NOTHING) and told.held == [1] and told.ahead_ns == 7


@pytest.mark.parametrize("solver", ["joint", "greedy-joint"])
def test_a_planned_pass_bound_by_launches_takes_what_was_predicted(device: torch.device, solver: str) -> None:
    make = mixed(32, 64)
    budget = int(0.8 * max(trained(device, make).peaks[1:]))
    kept = trained(device, make, budget=budget, solver=solver, around=True)
    assert kept.session is not None
    report, problem = kept.session.report(), alone(kept.session)
    assert report.predicted_pass_us is not None
    assert report.predicted_pass_us > base_us(problem) + 4  # something is done for the budget
    assert report.predicted_pass_us == pytest.approx(report.pass_us, rel=0.01)


def test_a_transfer_takes_a_launch_for_each_storage(device: torch.device) -> None:
    problem, _ = roomy(device, mixed(32, 16))
    assert problem.launch_us == DEFAULT_HARDWARE.devices[0].launch_us
    copies = {op.name: op.copies for op in problem.ops}
    assert copies["aten::native_layer_norm"] == 3  # its result, mean and deviation: all three are saved
    assert copies["aten::addmm"] == 1


@pytest.mark.parametrize("asks", [(), (3,), (5, 6)])
@pytest.mark.parametrize("sends", [(), (2, 9)])
def test_readings_of_parts_are_the_reading_of_all(
    device: torch.device, asks: tuple[int, ...], sends: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = [int(size) for size in torch.randint(1, 2000, (12,), generator=generator)]
    tensors = [torch.zeros(size, 1000, device=device) for size in sizes]

    def read(apart: bool) -> Measured:
        torch.accelerator.synchronize()
        sim.read_launches()
        parts = []
        for number, tensor in enumerate(tensors):
            for _ in range(number % 4):
                tensor.add_(1.0)
                if number in asks:
                    tensor[0, 0].item()
                if number in sends:
                    sent(tensor)
            parts += [Measured(*sim.read_launches())] if apart else []
        return joined([*parts, Measured(*sim.read_launches())])

    apart = read(apart=True)
    assert apart == read(apart=False)
    assert 0 < apart.end_ns - apart.host_ns < apart.device_ns  # something is left over, but not all
    assert (apart.sent_ns > 0, apart.read_ns > 0) == (bool(sends), bool(asks))
    assert joined([NOTHING, apart, NOTHING]) == apart


def test_ranks_reckon_with_the_slowest_host() -> None:
    def problem(launch_us: int, ops: list[JointOp]) -> JointProblem:
        link = SwapLink(out_bytes_per_s=10**9, in_bytes_per_s=10**9, latency_us=0)
        return JointProblem(name="", budget_bytes=100, static_bytes=0, ops=tuple(ops), link=link, launch_us=launch_us)

    def op(**numbers: int | None) -> JointOp:
        return JointOp(name="op", output_bytes=1, inputs=(), comm=False, **numbers)  # type: ignore[arg-type]

    found = hardest(
        [problem(4, [op(time_us=9, launch_us=2, tail_us=1)]), problem(5, [op(time_us=3, launch_us=7, copies=2)])]
    )
    assert found.launch_us == 5
    assert found.ops == (op(time_us=9, launch_us=7, tail_us=3, copies=2),)
