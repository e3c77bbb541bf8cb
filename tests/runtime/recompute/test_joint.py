"""Joint plans carried out: the same training on a device of the budget's size, in the time and memory predicted."""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module

import pytest
import torch
from msgspec import structs
from torch import nn

from experiments.hardware import read_hardware
from experiments.models.gpt import Gpt, GptShape
from experiments.recompute.models import MODELS, SMALL_NETWORKS, Size, Trainee
from runtime.device import DEFAULT_HARDWARE, limited_memory, use_sim
from runtime.device.native import core
from runtime.recompute import RecomputeReport, RecomputeSession, plan
from runtime.recompute.layer import Layer
from runtime.recompute.together import require_simulated
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.solution import Limits, Solution, Status
from solvers.joint.draft import measure, plan_of
from solvers.planner import AnySolver
from tests.accelerators import prepared
from tests.runtime.recompute import training
from tests.runtime.recompute.test_session import LOOPS, budget_of, plain
from tests.runtime.recompute.training import QUICK, STEPS, Loop, Outcome, ordinary, trained
from tests.solvers.joint.drafts import random_draft

ROOMY = 1 << 33
Within = Callable[..., Loop]
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def device() -> torch.device:
    return prepared("sim")


@pytest.fixture
def within() -> Iterator[Within]:
    """From the second step of a loop on the device has the budget and no byte more, until the test ends."""
    with ExitStack() as limits:

        def limited(budget: int, loop: Loop = ordinary) -> Loop:
            limits.close()

            def run(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
                if index == 1:
                    limits.enter_context(limited_memory(torch.device("sim"), budget))
                return loop(trainee, optimizer, index)

            return run

        yield limited


@pytest.fixture
def launching_for_nothing() -> Iterator[Callable[[], None]]:
    """From when it is called on: else nothing of small models would leave, as each copy is a launch."""

    def begin() -> None:
        devices = tuple(structs.replace(one, launch_us=0.0) for one in DEFAULT_HARDWARE.devices)
        use_sim(structs.replace(DEFAULT_HARDWARE, devices=devices))

    yield begin
    use_sim()


@pytest.fixture
def launched_for_nothing(launching_for_nothing: Callable[[], None]) -> None:
    """From the test's begin on."""
    launching_for_nothing()


def require_kept(kept: Outcome, free: Outcome, budget: int) -> None:
    """Same bits, within the budget, and everything done as planned."""
    assert kept.equals(free)
    assert kept.session is not None and max(kept.peaks[1:]) <= budget
    report = kept.session.report()
    assert (report.diverged, report.replanned, report.left_out, report.refused, report.postponed) == (0, 0, 0, 0, 0)
    assert report.swapped_out == report.swapped_in
    assert abs(report.predicted_peak_bytes - report.peak_bytes) <= 0.02 * report.peak_bytes


@pytest.mark.parametrize(("name", "solver"), [("gpt", "joint"), ("resnet", "greedy-joint"), ("llama", "greedy-joint")])
def test_a_model_trains_on_a_device_of_the_budgets_size(
    device: torch.device, within: Within, launching_for_nothing: Callable[[], None], name: str, solver: str
) -> None:
    if name not in SMALL_NETWORKS:
        pytest.importorskip("transformers")
    budget = budget_of(plain(name), 0.6)
    launching_for_nothing()
    kept = trained(device, name, budget=budget, solver=solver, loop=within(budget))
    require_kept(kept, plain(name), budget)
    assert kept.session is not None and kept.session.report().swapped_out > 0


@pytest.mark.parametrize("name", ["two passes at once", "autocast", "failing"])
@pytest.mark.usefixtures("launched_for_nothing")
def test_other_loops_train_as_they_do_plainly(device: torch.device, name: str) -> None:
    free = trained(device, "gpt", loop=LOOPS[name], steps=3)
    budget = budget_of(free, 0.7)
    kept = trained(device, "gpt", budget=budget, solver="greedy-joint", loop=LOOPS[name], around=True, steps=3)
    assert kept.equals(free) and kept.session is not None
    assert kept.session.report().swapped_out > 0


def dropping(device: torch.device) -> Trainee:
    """A GPT that draws random numbers in every block."""
    model = Gpt(GptShape(layers=3, width=32, heads=2, context=32, dropout=0.2)).to(device)
    text, target = (torch.randint(64, (8, 32)).to(device) for _ in range(2))
    return Trainee(model, tuple(model.blocks), partial(model, text, target))


class Uneven(nn.Module):
    """Writes in place, reads its input late, and two of its results are views of one storage."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        one, two = self.first(hidden).relu_().chunk(2, dim=-1)
        three = torch.sigmoid(one) * two
        result: torch.Tensor = self.second(three.mul_(1.5)).tanh() + hidden
        return result


def uneven(device: torch.device) -> Trainee:
    """Blocks of awkward storages, one of them of another size."""
    blocks = [Uneven(32), Uneven(32), Uneven(32)]
    model = nn.Sequential(nn.Linear(16, 32), *blocks, nn.Linear(32, 8)).to(device)
    data = torch.randn(256, 16).to(device)
    return Trainee(model, tuple(blocks), lambda: model(data).square().mean())


@dataclass(frozen=True)
class Anything:
    """Answers with a random valid plan, the first of many that a seed tells."""

    seed: int

    def solve(self, problem: JointProblem, limits: Limits, watch: object = None) -> Solution[JointPlan]:
        """A plan that the judge will accept, as little sensible as it may be."""
        for attempt in range(400):
            given, draft = random_draft(problem, 1000 * self.seed + attempt)
            found = measure(given, draft)
            if found.violation is None and draft.away:
                return Solution(
                    status=Status.FEASIBLE, plan=plan_of(given, draft), solver="anything",
                    objective=found.objective_us, base=given.base_us,
                )  # fmt: skip
        raise AssertionError("no random plan is valid")


@cache
def plainly(name: str) -> Outcome:
    """What the fuzz compares with."""
    return trained(prepared("sim"), MAKERS[name], loop=LOOPS["accumulation"])


MAKERS = {"dropping": dropping, "uneven": uneven}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", list(MAKERS))
def test_any_valid_plan_trains_alike(
    device: torch.device, within: Within, name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver: AnySolver = Anything(seed)
    monkeypatch.setattr(import_module("runtime.recompute.decisions"), "build_solver", lambda *_: solver)
    budget = budget_of(plainly(name), 1.1)
    loop = within(budget, LOOPS["accumulation"])
    kept = trained(device, MAKERS[name], budget=budget, solver="joint", loop=loop)
    assert kept.equals(plainly(name)) and kept.session is not None
    report = kept.session.report()
    assert report.swapped_out > 0 and report.diverged == 0
    assert max(kept.peaks[1:]) <= budget


@pytest.mark.parametrize(("name", "share"), [("gpt", 0.45), ("resnet", 0.6)])
def test_a_step_takes_what_was_predicted(
    within: Within, name: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By shapes, so that operators are long beside their launches."""
    gc.collect()
    device = use_sim(read_hardware("sim-small"), shapes_only=True, capacity_bytes=ROOMY).device
    monkeypatch.setattr(training, "SMALL", Size(layers=6, width=256, heads=4, tokens=256, batch=16, vocabulary=512))
    try:
        report = by_shapes(device, within, name, share)
    finally:
        gc.collect()
        prepared("sim")
    assert report.pass_us is not None and report.predicted_pass_us is not None
    assert abs(report.predicted_pass_us - report.pass_us) <= 0.005 * report.pass_us
    assert report.peak_bytes <= report.predicted_peak_bytes <= report.budget_bytes


def by_shapes(device: torch.device, within: Within, name: str, share: float) -> RecomputeReport:
    """What two planned steps did; nothing of it is left."""
    budget = budget_of(trained(device, name, steps=2), share)
    kept = trained(device, name, budget=budget, solver="greedy-joint", loop=within(budget), steps=3)
    assert kept.session is not None
    return kept.session.report()


def least_of(device: torch.device) -> int:
    """The least budget that a refusal names; nothing of the refused training is left."""
    with pytest.raises(InfeasibleBudget, match=r"the budget is 200000 bytes, but any .* takes at least \d+") as refused:
        trained(device, "gpt", budget=200_000, solver="joint")
    assert refused.value.least_budget_bytes is not None
    return refused.value.least_budget_bytes


def test_too_small_a_budget_is_refused_with_the_least_one(device: torch.device, within: Within) -> None:
    least = least_of(device) + 512 * STEPS  # the loop keeps its losses
    gc.collect()
    kept = trained(device, "gpt", budget=least, solver="greedy-joint", loop=within(least))
    require_kept(kept, plain("gpt"), least)


def test_blocks_that_communicate_on_a_real_device_are_refused() -> None:
    layer = Layer(units=(), forward_waits_us=(5.0,), backward_waits_us=(), input_bytes=0, names=())
    require_simulated(torch.device("cuda"), [replace(layer, forward_waits_us=())])
    require_simulated(torch.device("sim"), [layer])
    with pytest.raises(InvalidInput, match=r"wait for collectives on cuda, .* simulated ranks only: choose a solver"):
        require_simulated(torch.device("cuda"), [layer])


def planned(device: torch.device) -> tuple[Trainee, RecomputeSession]:
    """A small GPT with a joint plan after the first step, on a device that holds no host memory."""
    torch.manual_seed(0)
    trainee = MODELS["gpt"](training.SMALL, device)
    budget = budget_of(plain("gpt"), 0.6)
    gc.collect()
    core.trim_host(device)
    return trainee, plan(trainee.model, budget=budget, solver="greedy-joint", blocks=trainee.blocks, limits=QUICK)


@pytest.mark.usefixtures("launched_for_nothing")
def test_page_locked_memory_stays_from_step_to_step(device: torch.device) -> None:
    trainee, session = planned(device)
    held = []
    for _ in range(5):
        with session:
            trainee.loss().backward()  # type: ignore[no-untyped-call]
        held.append(core.host_stats(device).held_bytes)
    assert held[:2] == [0, 0], "measured, and again since the second pass adds to gradients"
    assert held[2:] == [held[2]] * 3 and held[2] >= session.report().host_bytes > 0
    session.close()
    assert core.host_stats(device).held_bytes == 0
    session._decide()  # as `solution` may, outside
    assert core.host_stats(device).held_bytes == 0
    with session:
        assert core.host_stats(device).held_bytes >= session.report().host_bytes
        with pytest.raises(InvalidInput, match="leave it before you close it"):
            session.close()
    assert core.host_stats(device).held_bytes > 0
    del session
    gc.collect()
    assert core.host_stats(device).held_bytes == 0


@pytest.mark.usefixtures("launched_for_nothing")
def test_an_error_gives_page_locked_memory_back(device: torch.device) -> None:
    trainee, session = planned(device)
    with pytest.raises(KeyError), session:
        for _ in range(3):
            trainee.model.zero_grad()  # else the first step goes on
            trainee.loss().backward()  # type: ignore[no-untyped-call]
        assert core.host_stats(device).held_bytes >= session.report().host_bytes > 0
        raise KeyError
    assert core.host_stats(device).held_bytes == 0


@pytest.mark.usefixtures("launched_for_nothing")
def test_an_error_between_the_passes_gives_it_back_when_the_activations_die(device: torch.device) -> None:
    trainee, session = planned(device)
    for _ in range(2):
        with session:
            trainee.loss().backward()  # type: ignore[no-untyped-call]
    with pytest.raises(KeyError), session:
        loss = trainee.loss()
        raise KeyError
    used = core.host_stats(device).used_bytes
    assert 0 < used <= core.host_stats(device).held_bytes  # the loss still needs what is there
    del loss
    gc.collect()
    assert core.host_stats(device).held_bytes == 0
    with session:
        trainee.loss().backward()  # type: ignore[no-untyped-call]
        assert core.host_stats(device).held_bytes >= session.report().host_bytes
    assert core.host_stats(device).held_bytes > 0
    session.close()
    assert core.host_stats(device).held_bytes == 0
