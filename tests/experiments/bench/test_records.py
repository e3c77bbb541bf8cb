"""The section `records`: what observers add, from times that a clock of our own tells, and on this processor."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from experiments.bench import records
from experiments.bench.figure import Figure
from experiments.bench.records import record_figures
from tests.experiments.bench.clocks import Clock, alone
from tests.experiments.bench.console import call

Observers = dict[str, Callable[[], AbstractContextManager[object]]]


@contextmanager
def four_operators() -> Iterator[SimpleNamespace]:
    """A light recording that saw four operators."""
    yield SimpleNamespace(ids=[1, 2, 3, 4])


def figures(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], rounds: list[list[float]]) -> list[Figure]:
    """The section's figures where the step takes these nanoseconds, round by round and observer by observer."""
    observers: Observers = dict.fromkeys(names, nullcontext)
    monkeypatch.setattr("runtime.profile.recording.light_recording", four_operators)
    monkeypatch.setattr(records, "_observers", lambda: observers)
    monkeypatch.setattr(records, "_training_step", lambda: lambda: None)
    monkeypatch.setattr(records, "time", Clock(thread_time_ns=alone(*(each for one in rounds for each in one))))
    return record_figures(len(rounds) - 1)


def test_differences_are_paired_by_round_and_shared_among_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five rounds of a plain step of 4,000 … 4,800 ns and a guarded one, after one that warms up and does not count.

    The guard adds 400, 80, 400, 800 and 2,000 ns to a step, 100, 20, 100, 200 and 500 to each of four operators: the
    median is 100, though that of the guarded steps (4,800) is 600 above the plain ones' 4,200. Quartiles of five lie at
    places 1.5 and 4.5: 60 and 350. 400 of 4,200 ns are a ratio of 1 + 2/21.
    """
    rounds: list[list[float]] = [[90_000, 7]]
    rounds += [[4000, 4400], [4800, 4880], [4200, 4600], [4000, 4800], [4400, 6400]]
    plain, guard = figures(monkeypatch, ("plain", "guard"), rounds)
    assert (plain.name, plain.value, plain.unit) == ("plain step, per operator", 1050, "ns")
    assert (plain.ratio, plain.ratio_to) == (None, "")
    assert plain.how == "median, 4 operators a step, 5 interleaved rounds, CPU time of one thread"
    assert (guard.name, guard.value, guard.unit) == ("guard, per operator", 100, "ns")
    assert guard.ratio == pytest.approx(1 + 2 / 21)
    assert guard.ratio_to == "plain"
    assert guard.how == "median of paired differences (quartiles 60 to 350), start and stop excluded"


def test_a_build_without_a_guard_says_so_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    found = figures(monkeypatch, ("plain", "light"), [[1, 1], [40, 80], [40, 80]])
    assert [figure.name for figure in found] == [f"{name}, per operator" for name in ("plain step", "light", "guard")]
    assert (found[1].value, found[1].ratio) == (10, 2)
    assert (found[2].value, found[2].ratio) == (None, None)
    assert found[2].how == "this build has no swap guard: run `make build`"


def test_the_guard_is_let_go_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []
    monkeypatch.setattr("runtime.device.native.core", SimpleNamespace(hold_swap_guard=held.append))
    observers = records._observers()
    assert tuple(observers) == ("plain", "light", "detailed", "guard")
    with pytest.raises(RuntimeError), observers["guard"]():
        assert held == [True]
        raise RuntimeError("a step that fails")
    assert held == [True, False]
    monkeypatch.setattr("runtime.device.native.core", SimpleNamespace())
    assert tuple(records._observers()) == ("plain", "light", "detailed")


def test_a_real_step_is_timed_on_one_thread_which_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The observers of this build, and a ratio that is the added time's."""
    threads = torch.get_num_threads()
    used: list[int] = []
    step = records._training_step()

    def counting() -> torch.Tensor:
        used.append(torch.get_num_threads())
        return step()

    monkeypatch.setattr(records, "_training_step", lambda: counting)
    torch.set_num_threads(threads + 1)
    try:
        found = {figure.name: figure for figure in record_figures(rounds=3)}
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert set(used) == {1}
    assert len(used) == 2 + 4 * 4  # one to begin, one to count operators, then three rounds and a warm one of four
    assert set(found) == {f"{name}, per operator" for name in ("plain step", "light", "detailed", "guard")}
    plain, detailed = found["plain step, per operator"], found["detailed, per operator"]
    assert plain.value is not None and detailed.value is not None
    assert detailed.ratio == pytest.approx(1 + detailed.value / plain.value)
    assert "233 operators a step, 3 interleaved rounds" in plain.how


def test_the_step_trains_the_same_model_every_time() -> None:
    first, second = records._training_step(), records._training_step()
    assert torch.equal(first(), second())


def test_without_the_extension_the_section_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.device.native.why_missing", lambda name: f"{name} is not built: run `make build`")
    outcome = call("--only", "records")
    assert outcome.code == 0
    lines = [line for line in outcome.out.splitlines() if "per operator" in line]
    assert [line.split(",")[0].strip() for line in lines] == ["light", "detailed", "guard"]
    assert all("not measured" in line and "runtime._C is not built" in line for line in lines)
