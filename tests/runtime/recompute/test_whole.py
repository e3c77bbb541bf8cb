"""Plans of the whole step, carried out: the same training, within the budget, and what ran again is what is planned."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from experiments.hardware import read_hardware
from experiments.models.gpt import Gpt, GptShape
from experiments.recompute.models import Trainee
from runtime.device import memory_stats
from runtime.ranks import run_ranks
from runtime.recompute import RecomputeSession, plan
from runtime.recompute.graph import Place, Step, step_of
from runtime.recompute.policy import store_nothing
from runtime.recompute.walk import Walk
from runtime.recompute.whole import nothing_stored, policies_of, problem_of
from runtime.recompute.work import Deed, Work, carry_out
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.schedule import Action, Schedule
from solvers.ir.solution import Limits, Solution, Status
from solvers.planner import make_problem, require_valid
from tests.accelerators import prepared
from tests.runtime.recompute.test_session import LOOPS, budget_of, plain
from tests.runtime.recompute.training import STEPS, Outcome, trained

QUICK = Limits(time_s=math.inf, work=0.1)
pytestmark = pytest.mark.usefixtures("quick")
HARDWARE = read_hardware("sim-small")


@pytest.fixture(scope="module")
def device() -> torch.device:
    return prepared("sim")


def step_in(session: RecomputeSession | None) -> Step:
    """The measured step that was planned."""
    assert session is not None and session.whole is not None and session.whole.step is not None
    return session.whole.step


def planned_nodes(session: RecomputeSession) -> int:
    """The nodes of tapes that the decision computes again, counted from its R: in each stage each once."""
    step, layers = step_in(session), session.layers
    assert session.solution is not None and session.solution.plan is not None
    again: set[tuple[int, int, int]] = set()
    for stage, op in session.solution.plan.compute:
        if stage != op:
            place = step.places[op]
            assert place.kind == "unit"
            again |= {(stage, place.block, node) for node in layers[place.block].units[place.index].nodes}
    return len(again)


def require_as_planned(kept: Outcome, free: Outcome, budget: int) -> None:
    """Same bits, within the budget, the peak that was predicted, and the nodes that were planned."""
    assert kept.equals(free)
    assert max(kept.peaks[1:]) <= budget
    assert kept.session is not None
    report = kept.session.report()
    assert (report.on_demand, report.diverged, report.replanned, report.left_out) == (0, 0, 0, 0)
    assert report.ahead == (STEPS - 1) * planned_nodes(kept.session)
    assert abs(report.predicted_peak_bytes - report.peak_bytes) <= 0.01 * report.peak_bytes


@pytest.mark.parametrize(
    ("solver", "share"), [("opt", 0.8), ("opt", 0.5), ("opt-milp", 0.6), ("opt-intervals", 0.6), ("checkmate", 0.45)]
)
def test_any_solver_of_the_kind_decides_and_its_plan_is_carried_out(
    device: torch.device, solver: str, share: float
) -> None:
    budget = budget_of(plain("gpt"), share)
    kept = trained(device, "gpt", budget=budget, solver=solver)
    require_as_planned(kept, plain("gpt"), budget)
    assert kept.session is not None and planned_nodes(kept.session) > 0
    assert kept.session.report().exposed_us > 0


def _dropping(device: torch.device) -> Trainee:
    """Dropout: what autograd saves of it, a mask, and its result are planned apart."""
    shape = GptShape(layers=3, width=32, heads=2, context=64, batch=16, dropout=0.1)
    model = Gpt(shape).to(device)
    words = torch.randint(256, (16, 64)).to(device)
    return Trainee(model, tuple(model.blocks), lambda: model(words, words.roll(1, 1)))


@cache
def free_of(make: Callable[[torch.device], Trainee] | str) -> Outcome:
    return trained(prepared("sim"), make)


@pytest.mark.parametrize("make", [_dropping, "resnet"], ids=["dropout", "writes in place"])
def test_random_numbers_and_buffers_are_those_of_plain_training(
    device: torch.device, make: Callable[[torch.device], Trainee] | str
) -> None:
    """A node with two results may run for the one and leave the other for the next that asks."""
    budget = budget_of(free_of(make), 0.55 if make is _dropping else 0.72)
    kept = trained(device, make, budget=budget, solver="opt")
    assert kept.equals(free_of(make))
    assert max(kept.peaks[1:]) <= budget and kept.session is not None
    report = kept.session.report()
    assert (report.on_demand, report.diverged, report.replanned) == (0, 0, 0)
    assert 0 < report.ahead <= (STEPS - 1) * planned_nodes(kept.session)
    assert abs(report.predicted_peak_bytes - report.peak_bytes) <= 0.02 * report.peak_bytes


def _scaling(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> Tensor:
    """PyTorch's own scaler of losses, in half precision; its second step finds an infinity and skips the update."""
    scale = 2.0**127 if index == 1 else 256.0
    scaler = torch.amp.GradScaler("sim", init_scale=scale)
    optimizer.zero_grad()
    with torch.autocast("sim", torch.bfloat16):
        loss = trainee.loss() * (16 if index == 1 else 1)
    scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == (scale / 2 if index == 1 else scale)
    return loss.detach()


@pytest.mark.parametrize("name", ["accumulation", "two passes at once", "scaler"])
def test_a_loop_of_its_own_kind_trains_the_same(device: torch.device, name: str) -> None:
    """Two passes at once take what two passes take, which the budget allows for here: it is not planned."""
    loop = {**LOOPS, "scaler": _scaling}[name]
    free = trained(device, "gpt", loop=loop)
    kept = trained(device, "gpt", loop=loop, budget=budget_of(free, 0.9), solver="opt", around=True)
    assert kept.equals(free) and kept.session is not None
    if name != "two passes at once":
        assert kept.session.report().peak_bytes <= budget_of(free, 0.9)


class Unlike(nn.Module):
    """Blocks of three kinds and two widths, one of them frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 32)),
            nn.Sequential(nn.Linear(32, 64), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(64, 48)),
            nn.Sequential(nn.Linear(48, 192), nn.Tanh(), nn.Linear(192, 48), nn.SiLU()),
            nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 128), nn.GELU(), nn.Linear(128, 8)),
        ])  # fmt: skip
        self.blocks[2].requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """A loss."""
        for block in self.blocks:
            images = block(images)
        return functional.mse_loss(images, torch.zeros_like(images))


def _unlike(device: torch.device) -> Trainee:
    model, images = Unlike().to(device), torch.randn(512, 32).to(device)
    return Trainee(model, tuple(model.blocks), lambda: model(images))


def test_blocks_need_not_be_alike(device: torch.device) -> None:
    budget = budget_of(free_of(_unlike), 0.8)
    kept = trained(device, _unlike, budget=budget, solver="opt")
    assert kept.equals(free_of(_unlike)) and max(kept.peaks[1:]) <= budget
    assert kept.session is not None and kept.session.report().ahead > 0


def test_a_budget_too_small_is_refused_with_the_least_one_which_is_then_kept(device: torch.device) -> None:
    """Where the solver has no plan the step stores nothing, as the measured one did, and its peak is that one's."""
    with pytest.raises(InfeasibleBudget, match=r"no plan was found for a budget of \d+ bytes") as refused:
        trained(device, "gpt", budget=budget_of(plain("gpt"), 0.2), solver="opt")
    least = refused.value.least_budget_bytes
    assert least is not None
    del refused
    kept = trained(device, "gpt", budget=least + 512 * STEPS, solver="opt")  # the loop keeps its losses
    assert kept.equals(plain("gpt")) and max(kept.peaks[1:]) <= least + 512 * STEPS


def test_a_solver_without_a_plan_leaves_everything_to_run_again(device: torch.device) -> None:
    kept = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "solvers.recompute.graph.opt.solver.Opt.solve",
            lambda self, problem, limits, watch=None: Solution(
                status=Status.UNKNOWN, plan=None, solver="opt", reason="asleep"
            ),
        )
        kept = trained(device, "gpt", budget=budget_of(plain("gpt"), 0.7), solver="opt")
    require_as_planned(kept, plain("gpt"), budget_of(plain("gpt"), 0.7))
    assert kept.session is not None and kept.session.solution is not None
    assert kept.session.solution.reason == "nothing is stored; the solver had no plan (asleep)"
    assert max(kept.peaks[2:]) < budget_of(plain("gpt"), 0.5)


def test_the_graph_is_the_problem_and_peaks_where_the_measured_step_did(device: torch.device) -> None:
    """`bayplan make` makes the session's problem of its graph; storing nothing peaks at what the first step took."""
    kept = trained(device, _dropping, budget=budget_of(free_of(_dropping), 0.7), solver="opt")
    session = kept.session
    assert session is not None and session.plans.footprint is not None
    made = make_problem("recompute-graph", session.graph("whole step"), HARDWARE, budget_of(free_of(_dropping), 0.7))
    assert made == problem_of(session.plans.step("whole step"), budget_of(free_of(_dropping), 0.7))
    bare = step_of(session.layers, session.plans.footprint.peaks, beyond_bytes=0, name="bare", source="")
    problem = problem_of(bare, session._first_peak_bytes)
    require_valid(problem, nothing_stored(bare, session.layers, problem), "nothing stored")
    plain_peak, whole_peak = max(free_of(_dropping).peaks), max(session.graph().memory_bytes)
    assert abs(whole_peak - plain_peak) <= 0.03 * plain_peak  # with everything kept


class Split(nn.Module):
    """A layer whose hidden features tensor parallelism splits."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, hidden: Tensor) -> Tensor:
        """With a residual."""
        inside = functional.gelu(functional.gelu(functional.gelu(self.up(self.norm(hidden)))))  # shorter than a sum
        return hidden + functional.dropout(self.down(inside), 0.1)


def _two_ranks(rank: int, share: float | None, peak: int) -> tuple[list[Tensor], list[int], tuple[int, ...]]:
    """Losses, gradients and weights; the peaks; the report's counts, and nodes planned in waits and in all."""
    dist.init_process_group("sim")
    device = torch.device(f"sim:{rank}")
    torch.manual_seed(0)
    model = nn.Sequential(*(Split() for _ in range(3))).to(device)
    mesh = init_device_mesh("sim", (2,))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    session = None
    if share is not None:
        session = plan(model, budget=int(share * peak), solver="opt", blocks=list(model), limits=QUICK)
    left, peaks = [], []
    for index in range(4):
        torch.accelerator.reset_peak_memory_stats(device)
        if session is not None:
            session.__enter__()
        torch.manual_seed(index)
        inputs = torch.randn(2048, 64).to(device).requires_grad_()
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        peaks.append(memory_stats(device).peak_bytes)
        left.append(loss.detach().cpu())
        del loss, inputs
        if session is not None:
            session.__exit__(None, None, None)
    for parameter in model.parameters():
        for one in (parameter, parameter.grad):
            assert one is not None
            left.append(getattr(one, "_local_tensor", one).detach().cpu().clone())
    counts: tuple[int, ...] = ()
    if session is not None:
        report, works = session.report(), [policy.work for policy in session.plans.policies()]
        deeds = [deed for work in works if work for deeds in work.in_waits.values() for deed in deeds]
        in_waits = sum(len(deed.nodes) for deed in deeds if isinstance(deed, Deed))
        counts = (report.ahead, report.on_demand, report.left_out, in_waits, planned_nodes(session))
    dist.barrier()
    return left, peaks, counts


def test_two_ranks_recompute_in_the_waits_of_their_all_reduces() -> None:
    prepared("sim")
    hardware = "conf/hardware/sim-cluster.json"
    free = run_ranks(partial(_two_ranks, share=None, peak=0), 2, hardware=hardware).values
    peak = max(max(one[1]) for one in free)
    kept = run_ranks(partial(_two_ranks, share=0.75, peak=peak), 2, hardware=hardware).values
    for mine, plainly in zip(kept, free, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine[0], plainly[0], strict=True))
        assert max(mine[1][2:]) <= int(0.75 * peak)
        ahead, on_demand, left_out, in_waits, nodes = mine[2]
        assert in_waits > 0 and on_demand == left_out == 0
        assert 0 < ahead <= 3 * nodes


def test_a_schedule_is_read_as_it_stands() -> None:
    """Of three units of block 0 one is stored, one comes again in a wait of block 1, is let go, and comes once more."""
    session = _measured()
    step = step_in(session)
    units = [op for op, place in enumerate(step.places) if place.kind == "unit" and place.block == 0][:3]
    begins = {place.block: op for op, place in enumerate(step.places) if place.kind == "begin"}
    places = list(step.places)
    places[begins[1] + 1] = Place("wait", 1, 0)  # what hands its gradient on shall be a collective
    asked = [("compute", op) for op in range(begins[1] + 1)]
    for op in units[1:]:
        asked.insert(begins[3], ("release", op))  # before any backward pass: it is not stored
    asked += [("collective_start", begins[1] + 1), ("recompute", units[1]), ("collective_wait", begins[1] + 1)]
    asked += [("release", units[1]), ("recompute", units[1]), ("recompute", units[2]), ("compute", begins[0])]
    actions = tuple(
        Action(id=number, lane="0.compute", do=do, op=op, data=(), bytes=0, after=())  # type: ignore[arg-type]
        for number, (do, op) in enumerate(asked)
    )
    schedule = Schedule(lanes=("0.compute",), actions=actions)
    policies = policies_of(replace(step, places=tuple(places)), session.layers, schedule)
    nodes = [session.layers[0].units[index].nodes for index in range(3)]
    assert policies[1].work == Work((), {0: (Deed("replay", 0, nodes[1]),)})
    both = tuple(sorted({*nodes[1], *nodes[2]}))
    assert policies[0].work == Work((Deed("drop", 0, nodes[1]), Deed("replay", 0, both)), {})
    stored = policies[0].store.store
    assert [bool(stored[of[0]]) for of in nodes] == [True, False, False]


def _measured() -> RecomputeSession:
    device = prepared("sim")
    kept = trained(device, "gpt", budget=budget_of(plain("gpt"), 0.9), solver="opt", steps=2)
    assert kept.session is not None
    return kept.session


def test_what_is_told_to_go_goes_and_comes_back(device: torch.device) -> None:
    """A drop between two replays: the second one runs the node again; nodes that a tape lacks are passed over."""
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8)).to(device)
    images = torch.randn(16, 8).to(device).requires_grad_()
    plainly = torch.autograd.grad(block(images).square().mean(), [images, *block.parameters()])
    with Walk([block], device, policies=store_nothing(1)) as walk:
        loss = block(images).square().mean()
        tape = walk.calls[0].tape
        assert tape is not None
        gelu = next(index for index, node in enumerate(tape.nodes) if "gelu" in node.name)
        chain = tuple(range(gelu + 1))
        work = Work((Deed("replay", 0, chain), Deed("drop", 0, (gelu,)), Deed("replay", 0, (gelu, 99))))
        call = walk.calls[0]
        assert carry_out(work, {0: call}) is None and work.replays == len(chain) + 2
        in_wait = carry_out(Work((Deed("replay", 1, (0,)),), {1: (Deed("replay", 1, (0,)),)}), {0: call})
        assert in_wait is not None
        in_wait(0)
        in_wait(1)
        assert tape.replayed_ahead == len(chain) + 1
        found = torch.autograd.grad(loss, [images, *block.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(found, plainly, strict=True))
    assert walk.counts.on_demand == 0
