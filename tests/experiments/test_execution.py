"""Policies executed in worlds: out of memory is an answer, and nothing of a run outlives it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from experiments.config import DeviceKind, HardwareConf
from experiments.execution import Execution, Treatment, _decided, attempt, execute
from experiments.hardware import SHIPPED
from experiments.models import GptShape
from experiments.worlds import World, load_hardware, require_world
from runtime.device.native import why_missing
from solvers.ir import BayplanError, InvalidInput
from solvers.ir.errors import InfeasibleBudget
from tests.experiments.tiny import tiny_hardware

BUILT = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")
SHAPE = GptShape(layers=1, width=32, heads=2, context=32, batch=8)


def world() -> World:
    return World(DeviceKind.sim, tiny_hardware("sim-small"))


@BUILT
def test_training_twice_gives_the_same_bits_times_and_peaks() -> None:
    one, two = (execute(SHAPE, world(), 3, profile="g") for _ in range(2))
    assert one.equals(two) == (True, True, True)
    assert one.step_us == two.step_us and one.peak_bytes == two.peak_bytes
    assert one.graph == two.graph
    assert len(one.losses) == 3 and one.reason is None


@BUILT
def test_a_device_that_is_too_small_is_an_answer_and_the_next_run_begins_afresh() -> None:
    before = execute(SHAPE, world(), 2)
    failed = execute(SHAPE, world(), 2, Treatment(capacity_bytes=before.peak_bytes // 2))
    assert failed.reason is not None and "\n" not in failed.reason
    assert failed.typical_step_us is None and failed.peak_bytes <= before.peak_bytes // 2
    assert failed.equals(before)[0] is False
    again = execute(SHAPE, world(), 2)
    assert again.equals(before) == (True, True, True)
    assert again.peak_bytes == before.peak_bytes


@BUILT
def test_noise_changes_times_and_nothing_else() -> None:
    plain = execute(SHAPE, world(), 2)
    noisy, again = (execute(SHAPE, replace(world(), noise=0.1, seed=3), 2) for _ in range(2))
    assert noisy.equals(plain) == (True, True, True)
    assert noisy.step_us == again.step_us != plain.step_us


@BUILT
def test_each_step_is_told() -> None:
    told: list[str] = []
    execute(SHAPE, world(), 2, tell=told.append)
    assert told == ["step 1 of 2", "step 2 of 2"]


def test_the_first_step_is_not_typical() -> None:
    assert Execution(losses=torch.empty(0), step_us=(9.0, 2.0, 4.0, 3.0)).typical_step_us == 3.0
    assert Execution(losses=torch.empty(0), step_us=(9.0,)).typical_step_us == 9.0
    assert Execution(losses=torch.empty(0)).typical_step_us is None


@pytest.mark.parametrize("place", ["losses", "parameters", "gradients"])
def test_equality_is_seen_in_every_part(place: str) -> None:
    one = Execution(losses=torch.ones(2), parameters=(torch.ones(2),), gradients=(torch.ones(2), None))
    other = {
        "losses": replace(one, losses=torch.zeros(2)),
        "parameters": replace(one, parameters=(torch.zeros(2),)),
        "gradients": replace(one, gradients=(torch.zeros(2), None)),
    }[place]
    names = ("losses", "parameters", "gradients")
    assert dict(zip(names, one.equals(other), strict=True)) == {name: name != place for name in names}
    assert one.equals(replace(one, gradients=(torch.ones(2), torch.ones(2))))[2] is False


def test_the_link_of_a_machine_can_be_replaced() -> None:
    hardware = load_hardware(HardwareConf(file="sim-small", link_gb_per_s=4))
    assert [link.bytes_per_s for link in hardware.links] == [4 * 10**9]
    assert hardware.name == "sim-small, link 4 GB/s"
    assert load_hardware(HardwareConf(file="sim-small")).name == "sim-small"


def test_a_machine_without_a_link_has_none_to_replace(tmp_path: object) -> None:
    path = f"{tmp_path}/h.json"
    with open(path, "w") as file:
        file.write('{"format": "bayplan-hardware/1", "name": "h", "devices": [{"name": "d", "memory_bytes": 1}]}')
    with pytest.raises(InvalidInput, match="leave out link_gb_per_s"):
        load_hardware(HardwareConf(file=path, link_gb_per_s=4))


def test_a_gpus_plans_are_not_made_by_a_simulated_devices_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were a GPU: the default, an experiment's choice and its like are refused, a path is a wish."""
    monkeypatch.setattr(World, "require", lambda self: None)
    for name in ("sim-small", "sim-other", "sim-tiny"):
        require_world(DeviceKind.sim, HardwareConf(file=name))
        with pytest.raises(InvalidInput) as refused:
            require_world(DeviceKind.cuda, HardwareConf(file=name))
        assert str(refused.value) == (
            f"hardware '{name}' is what the simulated device models, and plans by it fit no GPU: measure this one "
            "(bayplan calibrate --device cuda --out FILE), then say hardware.file=FILE"
        )
    require_world(DeviceKind.cuda, HardwareConf(file="h200"))
    require_world(DeviceKind.cuda, HardwareConf(file=str(SHIPPED / "sim-small.json")))


def test_an_error_of_one_policy_is_its_reason() -> None:
    def refuses() -> Execution:
        raise BayplanError("operator 32 gives 4096 bytes where its profile gave 8192:\nuse a session")

    def fails() -> Execution:
        raise KeyError("no such tensor")

    refused, failed = attempt(refuses), attempt(fails)
    assert (refused.end, refused.reason) == (
        "refused",
        "operator 32 gives 4096 bytes where its profile gave 8192: use a session",
    )
    assert failed.end == "error"
    assert failed.reason is not None and failed.reason.startswith("raised KeyError at test_execution.py:")
    assert failed.typical_step_us is None and not any(failed.losses)
    whole = Execution(losses=torch.ones(2))
    assert attempt(lambda: whole) is whole


def test_ctrl_c_ends_the_experiment_and_a_fault_is_shown_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> Execution:
        raise KeyboardInterrupt

    def fails() -> Execution:
        raise KeyError("no such tensor")

    with pytest.raises(KeyboardInterrupt):
        attempt(interrupted)
    monkeypatch.setenv("BAYPLAN_TRACEBACK", "1")
    with pytest.raises(KeyError, match="no such tensor"):
        attempt(fails)


def test_a_budget_that_no_plan_keeps_is_told_with_the_least_one() -> None:
    def run() -> Execution:
        raise InfeasibleBudget("no plan keeps 3 bytes: raise the budget to 8", 8)

    done = attempt(run)
    assert (done.end, done.least_budget_bytes, done.typical_step_us) == ("infeasible", 8, None)


def test_a_session_that_only_measured_says_so() -> None:
    """Batches of other sizes in every step; it said to train one step first."""
    with pytest.raises(InvalidInput, match=r"each step was measured anew.* runtime\.swap\.session"):
        _decided(SimpleNamespace(solution=None))  # type: ignore[arg-type]
