"""What `wrap` decides, refuses and gives back."""

import copy
import math
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.amp import grad_scaler

from runtime.device import SimDevice, memory_stats, reset_peak_memory
from runtime.layout import report, unwrap, wrap
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.ir.solution import Limits
from tests.runtime.layout.models import Language, loss_of
from tests.runtime.layout.test_loops import Noisy, stepped
from tests.runtime.layout.training import Layouts, adamw, plain_loop, train_plainly, trained

QUICK = Limits(time_s=math.inf, work=0.2, threads=1)


def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Language()
    return model, adamw(list(model.parameters()))


def test_the_first_forward_is_measured_and_changes_no_bit(sim: SimDevice) -> None:
    plain = train_plainly(Language)
    model, optimizer = fresh()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert wrap(model, optimizer, budget="8MiB", host_budget="1GiB") == (model, optimizer)
    torch.manual_seed(1)
    losses = plain_loop(model, optimizer)
    assert trained(model, losses).same_as(plain)
    assert {id(parameter): name for name, parameter in model.named_parameters()} == names


def test_a_step_given_beforehand_trains_nothing(sim: SimDevice) -> None:
    plain = train_plainly(Language)
    model, optimizer = fresh()
    torch.manual_seed(1)
    wrap(model, optimizer, budget=8 << 20, step=lambda: torch.autograd.backward(loss_of(model, 0)))
    assert report(model).predicted_peak_bytes <= 8 << 20
    assert trained(model, plain_loop(model, optimizer)).same_as(plain)


def test_a_tight_budget_is_kept(sim: SimDevice) -> None:
    """A third of what the step takes plainly."""
    torch.manual_seed(0)
    model = Language(8, 64)
    states = 16 * sum(parameter.numel() for parameter in model.parameters())
    budget = states // 3
    sim.set_capacity(budget)
    optimizer = adamw(list(model.parameters()))
    wrap(model, optimizer, budget=budget, host_budget="1GiB", solver="exact-layout", limits=QUICK, chunk_bytes=70_000)
    for number in range(3):
        stepped(model, optimizer, number)
    assert report(model).peak_bytes <= budget
    assert report(model).departures == 0


def test_too_little_memory_is_refused_before_anything_moves(sim: SimDevice) -> None:
    for memory in ({"budget": "100KiB", "host_budget": "1GiB"}, {"budget": "1MiB", "host_budget": 1000}):
        model, optimizer = fresh()
        places = [parameter.data_ptr() for parameter in model.parameters()]
        with pytest.raises(InfeasibleBudget, match=r"bytes are needed; the host has .* needs (at least|exactly) \d+"):
            wrap(model, optimizer, step=lambda: torch.autograd.backward(loss_of(model, 0)), **memory)  # noqa: B023
        wrap(model, optimizer, **memory)
        with pytest.raises(InfeasibleBudget, match="bytes are needed"):
            loss_of(model, 0)
        assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
        assert len(places) == len(list(model.parameters()))
        wrap(model, optimizer, budget="8MiB", host_budget="1GiB")
        stepped(model, optimizer, 0)


def test_a_device_too_small_for_measuring_is_refused(sim: SimDevice) -> None:
    model, optimizer = fresh()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    sim.set_capacity(60_000)
    wrap(model, optimizer, budget="50KiB")
    with pytest.raises(
        InfeasibleBudget, match=r"60000 bytes does not hold the step .* out of memory.*: lower the batch"
    ):
        loss_of(model, 0)
    assert all(one.is_cpu and torch.equal(one, before[name]) for name, one in model.state_dict().items())
    sim.set_capacity(8 << 20)
    wrap(model, optimizer, budget="8MiB", host_budget="1GiB")
    stepped(model, optimizer, 0)


def test_the_least_that_is_told_is_enough(sim: SimDevice) -> None:
    model, optimizer = fresh()

    def step() -> None:
        torch.autograd.backward(loss_of(model, 0))

    with pytest.raises(InfeasibleBudget) as refused:
        wrap(model, optimizer, budget=1000, host_budget="1GiB", step=step, solver="exact-layout", limits=QUICK)
    least = refused.value.least_budget_bytes
    assert least is not None and re.search(rf"exactly {least} bytes", str(refused.value))
    wrap(model, optimizer, budget=least, host_budget="1GiB", step=step, solver="exact-layout", limits=QUICK)
    reset_peak_memory(sim.device)
    stepped(model, optimizer, 0)
    assert memory_stats(sim.device).peak_bytes <= 1.01 * least


def test_what_is_wrong_is_said_in_a_sentence(sim: SimDevice) -> None:
    model, optimizer = fresh()
    with pytest.raises(InvalidInput, match="16 of the optimizer's parameters are not the model's"):
        wrap(model, adamw(list(nn.Linear(4, 4).parameters()) * 1 + list(Language(2).parameters())[:14]), budget="1GiB")
    with pytest.raises(InvalidInput, match="budget is -1: give whole bytes"):
        wrap(model, optimizer, budget=-1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'buget'"):
        wrap(model, optimizer, budget=1, buget=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="is not wrapped"):
        report(model)
    wrap(model, optimizer, budget="1GiB")
    with pytest.raises(InvalidInput, match="wrapped already"):
        wrap(model, optimizer, budget="1GiB")
    with pytest.raises(InvalidInput, match="not decided before the first step"):
        report(model)
    with torch.no_grad(), pytest.raises(InvalidInput, match="first forward runs without gradients"):
        loss_of(model, 0)
    stepped(model, optimizer, 0)
    assert model.to("sim") is model
    around = nn.ModuleList([model])  # as Lightning's module holds it
    assert around.to("sim")[0] is model
    with pytest.raises(InvalidInput, match="cannot be moved or converted"):
        around.to("cpu")
    for wrong in (lambda: model.to("cpu"), model.half, lambda: model.to(torch.bfloat16), lambda: copy.deepcopy(model)):
        with pytest.raises(InvalidInput, match="a wrapped model cannot be"):
            wrong()  # type: ignore[no-untyped-call]
    stepped(model, optimizer, 1)
    unwrap(model)
    assert {parameter.device.type for parameter in model.to("cpu").parameters()} == {"cpu"}


def test_hooks_on_parameters_are_refused(sim: SimDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = fresh()
    next(model.parameters()).register_hook(lambda gradient: gradient)  # type: ignore[no-untyped-call]
    monkeypatch.setattr(grad_scaler._MultiDeviceReplicator, "get", _Replicating.get)
    with pytest.raises(InvalidInput, match=r"parameter 'positions' has hooks on its gradient"):
        wrap(model, optimizer, budget="1GiB")
    assert grad_scaler._MultiDeviceReplicator.get.__qualname__ == "_Replicating.get"


def test_an_optimizer_of_sparse_gradients_is_refused(sim: SimDevice) -> None:
    model = nn.Sequential(nn.Embedding(9, 4, sparse=True))
    optimizer = torch.optim.SparseAdam(list(model.parameters()))
    with pytest.raises(InvalidInput, match=r"SparseAdam takes sparse gradients only, .* sparse=False"):
        wrap(model, optimizer, budget="1GiB", device="sim")
    with pytest.raises(InvalidInput, match=r"module '0' has sparse gradients, .* with sparse=False"):
        wrap(model, torch.optim.SGD(model.parameters()), budget="1GiB", device="sim")


def test_budgets_and_types_that_are_none_are_refused(sim: SimDevice) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(InvalidInput, match="budget is inf: give whole bytes"):
        wrap(model, optimizer, budget=float("inf"), device="sim")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"compute_dtype is torch.int8: give a type of floating-point numbers"):
        wrap(model, optimizer, budget="1GiB", device="sim", compute_dtype=torch.int8)


def test_steps_for_graphs_are_refused_unless_fused(sim: SimDevice) -> None:
    for kind, remedy in ((torch.optim.AdamW, r"capturable=False \(or fused=True\)$"), (torch.optim.NAdam, "False$")):
        model = Language()
        optimizer = kind(model.parameters(), capturable=True)
        with pytest.raises(InvalidInput, match=rf"{kind.__name__} has capturable=True, .* on the host: .*{remedy}"):
            wrap(model, optimizer, budget="1GiB", device="sim")
    fused = torch.optim.AdamW(model.parameters(), capturable=True, fused=True)
    wrap(model, fused, budget="1GiB", device="sim")
    stepped(model, fused, 0)


class _Replicating:
    def get(self, device: torch.device) -> torch.Tensor:
        raise AssertionError(device)


def test_a_module_around_a_wrapped_model_cannot_convert_it(sim: SimDevice) -> None:
    layouts = Layouts(lambda: Language().to(torch.bfloat16))
    model, _ = layouts.wrapped(layouts.random_plan(0))
    around = nn.ModuleDict({"inner": model})
    for wrong in (lambda: around.to("sim", torch.float32), around.float, around.half):
        with pytest.raises(InvalidInput, match="cannot be moved or converted"):
            wrong()  # type: ignore[no-untyped-call]
    assert around.to("sim") is around and around.to("sim", torch.bfloat16) is around


def test_wrapping_draws_no_random_numbers(sim: SimDevice) -> None:
    """Not by the steps of somebody's own optimizer, nor by measuring one."""
    layouts = Layouts(Language, make_optimizer=Noisy)
    model = Language()
    optimizer = Noisy(list(model.parameters()))
    module = torch.get_device_module(sim.device)
    torch.manual_seed(3)
    before = torch.get_rng_state(), module.get_rng_state(sim.device)
    plan = layouts.random_plan(5)
    assert plan.persistent
    wrap(model, optimizer, budget="1GiB", host_budget="1GiB", plan=plan, profile=layouts.profile, chunk_bytes=20_000)
    after = torch.get_rng_state(), module.get_rng_state(sim.device)
    assert all(map(torch.equal, before, after))


def test_a_plan_for_another_model_is_refused(sim: SimDevice) -> None:
    layouts = Layouts(Language)
    model, optimizer = fresh()
    plan = Layouts(lambda: Language(3)).random_plan(0)
    with pytest.raises(InvalidInput, match="policies for 5 blocks, but this step has 7"):
        wrap(model, optimizer, budget="1GiB", plan=plan, profile=layouts.profile)


def test_training_goes_on_from_saved_states_under_another_layout(sim: SimDevice, tmp_path: Path) -> None:
    """Two steps, saved in plain names, two steps more: as four plain ones, and as a plain model that goes on."""
    layouts = Layouts(Language)

    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, first: int = 0, steps: int = 4) -> list[Tensor]:
        found = []
        for number in range(first, first + steps):
            torch.manual_seed(number)
            found.append(stepped(model, optimizer, number))
        return found

    plain = train_plainly(Language, loop=loop)
    model, optimizer = layouts.wrapped(layouts.random_plan(1))
    losses = loop(model, optimizer, 0, 2)
    torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "states.pt")
    for plan in (layouts.random_plan(2), None):
        model, optimizer = layouts.wrapped(plan)
        loop(model, optimizer, 7, 1)
        _go_on(model, optimizer, tmp_path)
        assert trained(model, losses + loop(model, optimizer, 2, 2)).same_as(plain)
    model = Language().to("sim")
    optimizer = adamw(list(model.parameters()))
    _go_on(model, optimizer, tmp_path)
    assert trained(model, losses + loop(model, optimizer, 2, 2)).same_as(plain)


def _go_on(model: nn.Module, optimizer: torch.optim.Optimizer, place: Path) -> None:
    states, moments = torch.load(place / "states.pt")
    model.load_state_dict(states)
    optimizer.load_state_dict(moments)


def test_a_model_that_is_on_the_device_already_is_moved(sim: SimDevice) -> None:
    """In the middle of its training."""
    plain = train_plainly(
        Language, loop=lambda model, optimizer: [*plain_loop(model, optimizer), stepped(model, optimizer, 9)]
    )
    torch.manual_seed(0)
    model = Language().to("sim")
    optimizer = adamw(list(model.parameters()))
    torch.manual_seed(1)
    losses = plain_loop(model, optimizer)
    wrap(model, optimizer, budget="1MiB", host_budget="1GiB")
    losses.append(stepped(model, optimizer, 9))
    assert trained(model, losses).same_as(plain)


def test_unwrapped_it_trains_on_as_before(sim: SimDevice) -> None:
    layouts = Layouts(Language)
    model, optimizer = layouts.wrapped(layouts.random_plan(3))
    stepped(model, optimizer, 0)
    forward, step = type(model).forward, type(optimizer).step
    unwrap(model)
    assert model.forward.__func__ is forward and optimizer.step.__func__ is step  # type: ignore[attr-defined]
    loss_of(model, 1, "cpu").backward()  # type: ignore[no-untyped-call]
    optimizer.step()
