"""The section `matching`: what is compared with what, from times told by a clock of our own, and on sim."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch

from experiments.bench import matching
from experiments.bench.matching import GUARD, IDLE, MATCHING, NAMES, OWN, POLICY, SESSION, TRACKED, matching_figures
from runtime.device import use_sim
from runtime.device.native import core
from tests.experiments.bench.clocks import Clock, alone


def test_a_figure_is_the_median_of_differences_by_round_over_its_goal() -> None:
    """Differences 400, 80, 400, 800, 2,000 over four parts: 100, 20, 100, 200, 500; the fastest differ by 400."""
    times = ([4400, 4880, 4600, 4800, 6400], [4000, 4800, 4200, 4000, 4400])
    figure = matching._figure("guard", times, 4, 200, "of these")
    assert (figure.name, figure.value, figure.unit) == ("guard", 100, "ns")
    assert (figure.ratio, figure.ratio_to) == (0.5, "goal of 200 ns")
    assert figure.how == "median of paired differences (quartiles 60 to 350; fastest rounds 100), of these"


def test_rounds_take_turns_and_the_first_one_only_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What entering and leaving an observer takes is not counted: the clock is read around the step alone."""
    told: list[str] = []

    @contextmanager
    def first(step: matching.Step) -> Iterator[None]:
        told.append("enter first")
        yield
        told.append("leave first")

    @contextmanager
    def second(step: matching.Step) -> Iterator[None]:
        told.append("enter second")
        yield

    monkeypatch.setattr(matching, "time", Clock(process_time_ns=alone(99, 98, 1, 2, 3, 4)))
    times = matching._times(lambda: told.append("step"), {"a": first, "b": second}, rounds=2)
    assert times == {"a": [1, 3], "b": [2, 4]}
    assert told == ["enter first", "step", "leave first", "enter second", "step"] * 3


def test_each_observer_is_compared_with_what_it_adds_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten operators, five sightings, every round alike: plain 1,000 ns; the policy's session 3,500, the guard 1,500."""
    spent = {"plain": 1000, IDLE: 1200, GUARD: 1500, SESSION: 2500, POLICY: 3500, TRACKED: 9000}

    def times(step: object, observers: Sequence[str], rounds: int) -> dict[str, list[int]]:
        assert list(observers) == list(spent) and rounds == 3
        assert torch.get_num_threads() == 1
        return {name: [each] * rounds for name, each in spent.items()}

    monkeypatch.setattr(matching, "_times", times)
    monkeypatch.setattr(matching, "_sightings", lambda step: 5)
    monkeypatch.setattr("experiments.smartswap.overhead.dispatcher_calls", lambda step: 10)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        figures = matching_figures(3)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert tuple(figure.name for figure in figures) == NAMES
    assert {figure.name: (figure.value, figure.ratio) for figure in figures} == {
        IDLE: (20, 0.1),  # 200 of 10 operators, over 200 ns
        GUARD: (50, 0.25),
        SESSION: (150, 0.75),
        POLICY: (250, 1.25),
        TRACKED: (800, 4),
        OWN: (30, 0.15),  # 1,500 − 1,200 of 10 operators
        MATCHING: (400, 0.4),  # 3,500 − 1,500 of 5 sightings, over 1,000 ns
    }
    assert figures[0].how.endswith("10 operators through the dispatcher, 3 interleaved rounds")
    assert figures[-1].how.endswith("for each of 5 sightings")


@pytest.mark.parametrize("observer", [matching._plain, matching._idle, matching._held], ids=("plain", "idle", "held"))
def test_every_observer_takes_one_step_before_and_lets_go_when_a_step_fails(
    observer: matching.Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[tuple[str, bool]] = []
    monkeypatch.setattr(core, "hold_idle_observer", lambda on: held.append(("idle", on)))
    monkeypatch.setattr(core, "hold_swap_guard", lambda on: held.append(("held", on)))
    steps: list[int] = []
    around: AbstractContextManager[object] = observer(lambda: steps.append(len(held)))
    with pytest.raises(RuntimeError), around:
        raise RuntimeError("a step that fails")
    name = observer.__name__.strip("_")
    assert held == ([] if name == "plain" else [(name, True), (name, False)])
    assert steps == [len(held) // 2]  # within the hold


def test_a_step_on_sim_has_sightings_and_its_figures_their_goals() -> None:
    """A product of two saved tensors shows both again; the real step's figures stand beside their goals."""
    device = use_sim(races="off").device
    weight = torch.ones(64, requires_grad=True, device=device)

    def step() -> None:
        (weight * weight.exp()).sum().backward()  # type: ignore[no-untyped-call]

    step()
    assert matching._sightings(step) > 0
    figures = {figure.name: figure for figure in matching_figures(rounds=2)}
    assert tuple(figures) == NAMES
    for name, figure in figures.items():
        goal = 1000 if name == MATCHING else 200
        assert figure.value is not None and figure.ratio == pytest.approx(figure.value / goal)


def test_without_sim_the_section_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "runtime._sim is not built: run `make build`"
    monkeypatch.setattr("runtime.device.native.why_missing", lambda name: missing if name == "runtime._sim" else None)
    figures = matching_figures(rounds=2)
    assert [(figure.name, figure.value, figure.how) for figure in figures] == [(name, None, missing) for name in NAMES]
