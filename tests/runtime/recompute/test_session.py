"""One line around an ordinary loop: what is trained is what plain training trains, within the budget, or refused."""

import gc
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from experiments.recompute.models import MODELS, SMALL_NETWORKS, Size, Trainee, gpt
from runtime.device import memory_stats
from runtime.recompute import plan
from runtime.swap import session as swap_session
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from tests.accelerators import prepared
from tests.runtime.recompute.training import SMALL, STEPS, Loop, Outcome, ordinary, trained
from tests.soaking import in_soak, some

SHARE = 0.8


@pytest.fixture(scope="module")
def device() -> torch.device:
    return prepared("sim")


@cache
def plain(name: str) -> Outcome:
    """Each model once."""
    return trained(prepared("sim"), name)


def budget_of(outcome: Outcome, share: float = SHARE) -> int:
    return int(share * max(outcome.peaks))


@pytest.mark.parametrize("name", some(MODELS))
def test_a_model_trains_within_the_budget_as_it_trains_plainly(device: torch.device, name: str) -> None:
    if name not in SMALL_NETWORKS:
        pytest.importorskip("transformers")
    budget = budget_of(plain(name), 0.9 if name.startswith("t5") else SHARE)
    kept = trained(device, name, budget=budget)
    assert kept.equals(plain(name))
    assert max(kept.peaks[1:]) <= budget < max(plain(name).peaks)
    assert kept.session is not None
    report = kept.session.report()
    assert report.on_demand > 0 and report.diverged == 0 and report.replanned == 0
    assert max(kept.peaks[1:]) <= report.predicted_peak_bytes <= min(budget, 1.02 * max(kept.peaks[1:]))  # a mask
    assert report.peak_bytes == max(kept.peaks[1:])


def test_the_optimizers_first_step_is_no_part_of_what_later_ones_take(device: torch.device) -> None:
    """Where parameters outweigh activations, the first step peaks where the optimizer makes its states, once."""
    small = partial(gpt, Size(layers=4, width=64, heads=2, tokens=16, batch=2, vocabulary=64))
    kept = trained(device, small, budget=max(trained(device, small).peaks), around=True)
    assert kept.session is not None
    report = kept.session.report()
    assert report.replanned == 0 and report.predicted_peak_bytes <= report.budget_bytes
    assert report.peak_bytes >= report.predicted_peak_bytes  # it holds the optimizer's later steps, too


@pytest.mark.parametrize("solver", ["heu", "block", "full", "checkmate-layer", "adapipe"])
def test_any_solver_of_the_kind_decides(device: torch.device, solver: str) -> None:
    kept = trained(device, "gpt", budget=budget_of(plain("gpt")), solver=solver)
    assert kept.equals(plain("gpt"))
    assert max(kept.peaks[1:]) <= budget_of(plain("gpt"))


def test_the_session_may_stand_around_the_whole_loop(device: torch.device) -> None:
    budget = budget_of(plain("gpt"))
    kept = trained(device, "gpt", budget=budget, around=True)
    assert kept.equals(plain("gpt"))
    assert kept.session is not None and kept.session.report().peak_bytes <= budget


def test_with_room_for_everything_only_the_first_step_runs_anything_again(device: torch.device) -> None:
    kept = trained(device, "gpt", budget=2 * max(plain("gpt").peaks))
    assert kept.equals(plain("gpt")) and kept.session is not None
    report = kept.session.report()
    assert (report.exposed_us, report.on_demand, report.replanned) == (0, 0, 0)


def test_a_budget_too_small_is_refused_with_the_least_one_which_is_then_kept(device: torch.device) -> None:
    with pytest.raises(InfeasibleBudget, match="the least feasible one") as refused:
        trained(device, "gpt", budget=budget_of(plain("gpt"), 0.2))
    assert refused.value.least_budget_bytes is not None
    least = refused.value.least_budget_bytes + 512 * STEPS  # the loop keeps its losses
    del refused
    kept = trained(device, "gpt", budget=least)
    assert kept.equals(plain("gpt"))
    assert max(kept.peaks[1:]) <= least
    with pytest.raises(InfeasibleBudget):
        trained(device, "gpt", budget=least - 512 * STEPS - 1)


def _accumulating(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    optimizer.zero_grad()
    losses = []
    for _ in range(3):
        loss = trainee.loss() / 3
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
    optimizer.step()
    return torch.stack(losses)


def _two_at_once(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    """Two forward passes before their backward passes."""
    optimizer.zero_grad()
    losses = [trainee.loss(), trainee.loss()]
    for loss in losses:
        loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return torch.stack([loss.detach() for loss in losses])


def _autocast(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    optimizer.zero_grad()
    with torch.autocast("sim", torch.bfloat16):
        loss = trainee.loss()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def _evaluating(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
    """A pass without gradients before and after; nothing of it is recorded."""
    with torch.no_grad():
        before = trainee.loss()
    loss = ordinary(trainee, optimizer, index)
    trainee.model.eval()
    with torch.no_grad():
        after = trainee.loss()
    trainee.model.train()
    return torch.stack([before, loss, after])


def _clipping(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    optimizer.zero_grad()
    loss = trainee.loss()
    loss.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(trainee.model.parameters(), 0.1, foreach=False)
    optimizer.step()
    return torch.stack([loss.detach(), norm.detach()])


def _scaled(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    """What GradScaler does to a loss and to gradients, by hand: it serves devices that have a backend for it."""
    optimizer.zero_grad()
    loss = trainee.loss()
    (loss * 1024).backward()  # type: ignore[no-untyped-call]
    for parameter in trainee.model.parameters():
        if parameter.grad is not None:
            parameter.grad.div_(1024)
    optimizer.step()
    return loss.detach()


def _a_loss_that_nobody_uses(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
    unused = trainee.loss().detach()
    return torch.stack([unused, ordinary(trainee, optimizer, index)])


def _failing(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
    """The step fails between the passes, and the loop goes on."""
    try:
        _ = trainee.loss()
        raise KeyError("a batch is missing")
    except KeyError:
        del _
    return ordinary(trainee, optimizer, index)


LOOPS: dict[str, Loop] = {
    "accumulation": _accumulating,
    "two passes at once": _two_at_once,
    "autocast": _autocast,
    "evaluation": _evaluating,
    "clipping": _clipping,
    "scaled": _scaled,
    "unused loss": _a_loss_that_nobody_uses,
    "failing": _failing,
}


@pytest.mark.parametrize(
    ("name", "around"),
    [
        (name, around) if around == bool(number % 2) else in_soak(name, around)
        for number, name in enumerate(LOOPS)
        for around in (False, True)
    ],
)
def test_a_loop_of_its_own_kind_trains_the_same(device: torch.device, name: str, around: bool) -> None:
    """Two passes at once take what two passes take, which the budget allows for here: it is not planned."""
    free = trained(device, "gpt", loop=LOOPS[name])
    kept = trained(device, "gpt", loop=LOOPS[name], budget=budget_of(free, 0.95), around=around)
    assert kept.equals(free)
    if name != "two passes at once":
        assert around or max(kept.peaks[2:]) <= budget_of(free, 0.95)


class Twice(nn.Module):
    """Blocks that are called twice in a pass, skipped in every other one, or frozen; the head is the table."""

    def __init__(self, twice: bool, skipping: bool) -> None:
        super().__init__()
        self.twice, self.skipping, self.count = twice, skipping, 0
        self.table = nn.Embedding(64, 32)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Dropout(0.1))
            for _ in range(4)
        )
        for parameter in self.blocks[1].parameters():
            parameter.requires_grad_(False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """The loss of words against the next ones."""
        self.count += 1
        hidden = self.table(words)
        for index, block in enumerate(self.blocks):
            if self.skipping and index == 2 and self.count % 2 == 0:
                continue
            hidden = hidden + block(hidden)
            if self.twice and index == 1:
                hidden = hidden + block(hidden)
        return functional.cross_entropy(hidden @ self.table.weight.t(), words.roll(1))


def _twice(device: torch.device, twice: bool, skipping: bool) -> Trainee:
    model = Twice(twice, skipping).to(device)
    words = torch.randint(64, (512,)).to(device)
    return Trainee(model, tuple(model.blocks), lambda: model(words))


@pytest.mark.parametrize(("twice", "skipping"), [(True, False), (False, True), (False, False)])
def test_blocks_called_twice_or_not_at_all_frozen_ones_and_tied_weights(
    device: torch.device, twice: bool, skipping: bool
) -> None:
    make = partial(_twice, twice=twice, skipping=skipping)
    free = trained(device, make)
    assert trained(device, make, budget=budget_of(free, 0.9)).equals(free)


def test_an_exception_leaves_the_model_as_it_was_and_the_session_may_be_entered_again(device: torch.device) -> None:
    torch.manual_seed(0)
    trainee = gpt(SMALL, device)
    session = plan(trainee.model, budget=2 * max(plain("gpt").peaks))
    with pytest.raises(KeyError), session:
        trainee.loss()
        raise KeyError("mid-step")
    assert all("forward" not in block.__dict__ for block in trainee.blocks)
    for _ in range(2):
        with session:
            trainee.loss().backward()  # type: ignore[no-untyped-call]
    assert session.report().exposed_us == 0


def _stack(device: torch.device) -> nn.Sequential:
    return nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))).to(device)


def test_a_second_session_on_the_device_is_refused_until_the_first_has_closed(device: torch.device) -> None:
    models = _stack(device), _stack(device)
    first, second = (plan(model, budget=1 << 30, blocks=list(model)) for model in models)
    data = torch.ones(4, 8, device=device, requires_grad=True)
    with first:
        models[0](data).sum().backward()
        peak = memory_stats(device).peak_bytes
        with pytest.raises(InvalidInput, match=r"another session of runtime\.recompute is open on sim:0: leave it"):
            second.__enter__()
        assert all("forward" not in vars(block) for block in models[1])
        assert memory_stats(device).peak_bytes == peak  # the first's own
        models[0](data).sum().backward()
    for session, model in [(second, models[1]), (first, models[0])]:
        with session:
            model(data).sum().backward()
        assert session.report().diverged == 0
        assert all("forward" not in vars(block) for block in model)


def test_inside_a_swapping_session(device: torch.device) -> None:
    """Recomputation keeps its own budget; the other session sees smaller steps, and swaps less or nothing."""
    free = plain("gpt")
    within = partial(swap_session, budget=max(free.peaks), device=device)
    assert trained(device, "gpt", budget=budget_of(free), within=within).equals(free)


def test_blocks_that_training_never_calls_are_told(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)).to(device)
    with plan(model, budget=1 << 30, blocks=[model]):
        pass
    assert not caplog.text
    with plan(model, budget=1 << 30, solver="joint", blocks=[model]) as session:
        model[1](model[0](torch.ones(2, 4, device=device))).sum().backward()
    assert "none of the 1 blocks (Sequential, ...) was called in training" in caplog.text
    with pytest.raises(InvalidInput, match=r"none of the 1 blocks .* was called in training, .*: give blocks= modules"):
        session.report()


def test_passes_that_never_end_are_told(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    model, data = _stack(device), torch.ones(4, 8, device=device)
    with plan(model, budget=1 << 30, blocks=list(model)) as session:
        kept = [model(data).sum() for _ in range(40)]
    assert "32 forward passes began before all those before had their backward pass" in caplog.text
    with pytest.raises(InvalidInput, match="so nothing is planned yet: let go of losses that get none"):
        session.report()
    kept.clear()


def test_after_a_loop_the_device_s_own_statistics_tell_the_last_step_s_peak(device: torch.device) -> None:
    """Many programs print them. Sessions begin them anew with each pass, and leave those of the last one."""
    kept = trained(device, "gpt", budget=budget_of(plain("gpt")), around=True)
    assert memory_stats(device).peak_bytes == kept.peaks[-1] > memory_stats(device).allocated_bytes


class Distilled(nn.Module):
    """A student beside a teacher of its kind, as momentum encoders are; with `both` the teacher learns, too."""

    def __init__(self) -> None:
        super().__init__()
        self.both = False
        self.teacher, self.student = (
            nn.Sequential(*(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(6)))
            for _ in range(2)
        )
        self.teacher.requires_grad_(False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """How far the student is from the teacher."""
        with torch.set_grad_enabled(self.both):
            goal = self.teacher(rows.flip(0))
        return functional.mse_loss(self.student(rows), goal)


def distilled(
    device: torch.device, budget: int | None = None, *, of: str = "", solver: str = "heu", learns: bool = False
) -> Outcome:
    """Six steps with a plan of the module of that name, the whole model if none; `learns`: the teacher at the end."""
    torch.manual_seed(0)
    model = Distilled().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = None if budget is None else plan(model.get_submodule(of), budget=budget, solver=solver)
    losses = []
    torch.accelerator.reset_peak_memory_stats(device)
    with nullcontext() if session is None else session:
        for step in range(6):
            if learns and step == 3:
                model.teacher.requires_grad_(True)
                model.both = True
            loss = model(torch.ones(256, 32, device=device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach().cpu())
    return Outcome(
        [*losses, *(one.detach().cpu() for one in model.parameters())], [memory_stats(device).peak_bytes], session
    )


@pytest.mark.parametrize("solver", ["heu", "greedy-joint"])
def test_what_never_trains_takes_none_of_the_room_of_what_does(device: torch.device, solver: str) -> None:
    free = distilled(device)
    reports = []
    for planned in ("", "student"):
        kept = distilled(device, budget_of(free), of=planned, solver=solver)
        assert kept.equals(free) and kept.session is not None
        reports.append(kept.session.report())
        del kept
        gc.collect()
    of_all, of_student = reports
    assert of_all.within_budget and of_all.exposed_us == of_student.exposed_us
    assert of_all.plan_peak_bytes == of_student.plan_peak_bytes


@pytest.mark.parametrize("solver", ["heu", "greedy-joint"])
def test_a_teacher_that_begins_to_learn_gets_room(device: torch.device, solver: str) -> None:
    free = distilled(device, learns=True)
    kept = distilled(device, budget_of(free), solver=solver, learns=True)
    assert kept.equals(free)
    assert kept.session is not None
    report = kept.session.report()
    assert report.within_budget and report.measured == 2 and report.diverged == 0


class _Checkpointed(nn.Module):
    """Switches checkpoints on by itself, as Transformers' models may."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Dropout(0.1)) for _ in range(4)
        )

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            data = data + checkpoint(block, data, use_reentrant=self.reentrant)
        return data


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_models_own_checkpoints_give_way_or_are_told(
    device: torch.device, reentrant: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def make(device: torch.device) -> Trainee:
        model = _Checkpointed(reentrant).to(device)
        data = torch.linspace(-1, 1, 256 * 32).view(256, 32).to(device).requires_grad_()
        return Trainee(model, tuple(model.blocks), lambda: model(data).square().mean())

    free = trained(device, make)
    kept = trained(device, make, budget=4 * max(free.peaks))
    assert kept.equals(free) and kept.session is not None
    assert ("blocks.3 runs within a backward pass" in caplog.text) == reentrant
    if not reentrant:
        report = kept.session.report()
        assert report.exposed_us == 0 and report.plan_peak_bytes > max(free.peaks), "all is stored"


def test_bad_input_is_answered_in_a_sentence(device: torch.device) -> None:
    model = gpt(SMALL, device).model
    with pytest.raises(InvalidInput, match="solver 'greedy-swap' is of kind 'swap': give one of kind"):
        plan(model, budget=1 << 30, solver="greedy-swap")
    with pytest.raises(InvalidInput, match="blocks is empty: give the modules"):
        plan(model, budget=1 << 30, blocks=[])
    with pytest.raises(InvalidInput, match="has no repeated blocks: put layers"):
        plan(nn.Linear(2, 2).to(device), budget=1 << 30)
    with pytest.raises(InvalidInput, match="on the CPU, where PyTorch counts no memory"):
        plan(gpt(SMALL, torch.device("cpu")).model, budget=1 << 30)
    with pytest.raises(InvalidInput, match=r"the budget is 0\.5: give whole bytes"):
        plan(model, budget=0.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="nothing is decided yet: train one step"):
        plan(model, budget=1 << 30).report()
    with plan(model, budget=1 << 30) as session, pytest.raises(InvalidInput, match="open already: leave it"):
        session.__enter__()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"parameters": 3}, "parameters is 3: give a dict"),
        ({"parameters": {3: 4}}, "parameters has the key 3: give the solver's fields"),
        ({"blocks": 3}, "blocks is 3: give a list of the model's modules"),
        ({"blocks": [3]}, r"blocks\[0\] is 3: give modules"),
        ({"blocks": nn.Tanh()}, "blocks is one Tanh: give a list"),
        ({"limits": 3}, r"limits is 3: give solvers\.ir\.solution\.Limits"),
        ({"solver": ["heu"]}, r"solver is \['heu'\]: give a name"),
        ({"model": 3}, "model is 3: give the torch.nn.Module"),
        ({"budget": 0}, "the budget is 0, below one byte: give"),
        ({"budget": -5}, "the budget is -5, below one byte: give"),
        ({"budget": "0%"}, "the budget is '0%', below one byte: give"),
        ({"budget": None}, "the budget is None: give whole bytes"),
    ],
)
def test_arguments_of_a_wrong_type_are_answered_at_the_call(
    device: torch.device, given: dict[str, Any], sentence: str
) -> None:
    model = _stack(device)
    with pytest.raises(InvalidInput, match=sentence):
        plan(**{"model": model, "budget": 1 << 30, "blocks": list(model), **given})


class Halves(nn.Module):
    """Blocks of two kinds, a list of each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(3))
        self.second = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)) for _ in range(3)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """One list behind the other."""
        for block in (*self.first, *self.second):
            hidden = hidden + block(hidden)
        return hidden


def _halves(device: torch.device) -> Trainee:
    model, data = Halves().to(device), torch.randn(1024, 16).to(device)
    return Trainee(model, (*model.first, *model.second), lambda: model(data).square().mean())


def test_where_nobody_names_a_solver_blocks_of_two_kinds_are_planned_by_one_of_the_whole_step() -> None:
    device = prepared("sim")
    free = trained(device, _halves)
    budget = int(0.75 * max(free.peaks))
    kept = trained(device, _halves, budget=budget, solver=None, around=True)
    assert kept.equals(free) and max(kept.peaks[1:]) <= budget and kept.session is not None
    report = kept.session.report()
    assert (report.solver, len(report.blocks)) == ("greedy-joint", 6)
    assert report.pass_us == pytest.approx(report.predicted_pass_us, rel=0.02)
    with pytest.raises(InvalidInput, match="block 3 runs other operators than block 0"):
        trained(device, _halves, budget=budget, solver="heu")
    single = nn.Sequential(nn.Linear(16, 16), nn.Conv1d(1, 1, 1)).to(device)
    assert plan(single, budget="1GiB").whole is not None, "nothing repeats"


class _Bare(nn.Module):
    """Bare linear layers: what they save they are given, so that nothing of them runs again."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            data = torch.relu(layer(data))
        return data


def _bare(device: torch.device) -> Trainee:
    model, data = _Bare().to(device), torch.linspace(-1, 1, 256 * 64).view(256, 64).to(device)
    return Trainee(model, tuple(model.layers), lambda: model(data).square().mean())


def test_where_nothing_runs_again_storages_leave_unless_somebody_named_a_solver_of_layers() -> None:
    device = prepared("sim")
    free = trained(device, _bare)
    budget = int(0.8 * max(free.peaks))
    kept = trained(device, _bare, budget=budget, solver=None, around=True)
    assert kept.equals(free) and max(kept.peaks[1:]) <= budget and kept.session is not None
    assert kept.session.report().solver == "greedy-joint"
    with pytest.raises(InvalidInput, match="no operator of the blocks can run again"):
        trained(device, _bare, budget=budget, solver="heu")


def test_blocks_that_run_other_operators_are_refused_by_number(device: torch.device) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Sequential(nn.Linear(8, 8), nn.GELU())).to(
        device
    )
    with (
        pytest.raises(InvalidInput, match="block 1 runs other operators than block 0"),
        plan(model, budget=1 << 30, solver="heu", blocks=list(model)),
    ):
        model(torch.ones(4, 8, device=device, requires_grad=True)).sum().backward()
