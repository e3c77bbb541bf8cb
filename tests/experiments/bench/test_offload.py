"""The section `offload`: each way's step and peak over the plain one's, told by hand and trained on sim."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from experiments.bench import offload
from experiments.bench.offload import Run, offload_figures

LOSSES = torch.tensor([3.0, 2.0])


@pytest.fixture
def on_sim(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without CUDA."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_a_way_stands_beside_the_plain_step(on_sim: None) -> None:
    """90 us for 60, 400 bytes of 1,000."""
    plain = Run(60.0, 1000, LOSSES)
    figure = offload._figure("session", Run(90.0, 400, LOSSES.clone()), plain)
    assert (figure.name, figure.value, figure.unit, figure.ratio) == ("session", 90, "µs", 1.5)
    assert figure.ratio_to == "plain"
    assert figure.how == "peak 40% of plain, losses equal, sim (modelled time), median of 5 steps"
    other = offload._figure("session", Run(90.0, 400, LOSSES + 1e-6), plain)
    assert "losses differ" in other.how


def test_what_is_not_installed_or_not_traced_is_no_figure(on_sim: None) -> None:
    missing = offload._figure("streamed offload", None, Run(60.0, 1000, LOSSES))
    assert (missing.value, missing.ratio, missing.how) == (None, None, "torchtune is not installed")
    for run in (None, Run(60.0, 1000, LOSSES)):
        assert (offload._hidden(run).value, offload._hidden(run).how) == (None, "a trace needs a CUDA device")
    hidden = offload._hidden(Run(60.0, 1000, LOSSES, hidden=0.75))
    assert (hidden.name, hidden.value, hidden.unit) == ("session, copies beside kernels", 75, "%")
    assert hidden.how == "of the time of copies to and from the host, one traced step"


def test_the_session_gets_its_share_of_the_plain_peak(on_sim: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.6 of 1,001 bytes, rounded down; only one way recomputes, none but the session is given a budget."""
    asked: list[tuple[bool, int | None]] = []

    def run(way: offload.Way, *, recompute: bool = False, budget_bytes: int | None = None) -> Run:
        asked.append((recompute, budget_bytes))
        return Run(50.0 + 10 * len(asked), 1001, LOSSES)

    monkeypatch.setattr(offload, "_run", run)
    monkeypatch.setattr(offload, "LIBRARY", "a_library_that_nobody_has.training")
    figures = offload_figures()
    assert asked == [(False, None), (True, None), (False, None), (False, 600)]
    assert [figure.name for figure in figures] == [*offload.NAMES, offload.HIDDEN]
    assert [figure.ratio for figure in figures] == [1, 70 / 60, 80 / 60, None, 90 / 60, None]
    assert figures[3].how == "a_library_that_nobody_has is not installed"


def test_steps_are_timed_one_by_one_and_the_first_ones_settle(on_sim: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 900, 800, 10, 30 and 20 us: two settle, and of the others 20 is the median."""
    readings = iter([0, 900, 1000, 1800, 2000, 2010, 3000, 3030, 4000, 4020])
    monkeypatch.setattr("runtime.device.clock", lambda device: lambda: 1000 * next(readings))
    monkeypatch.setattr(offload, "SETTLED", 2)
    monkeypatch.setattr(offload, "MEASURED", 3)
    entered: list[int | None] = []

    def way(budget_bytes: int | None) -> AbstractContextManager[None]:
        entered.append(budget_bytes)
        return nullcontext()

    run = offload._run(way)
    assert run.step_us == 20
    assert entered == [None] * 5  # around each step
    assert run.losses.shape == (5, 1)
    assert run.losses[4] < run.losses[0]  # it trains
    assert run.hidden is None
    assert run.peak_bytes > 0
    assert next(readings, None) is None


def test_a_session_is_entered_once_around_all_steps(on_sim: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "SETTLED", 1)
    monkeypatch.setattr(offload, "MEASURED", 1)
    entered: list[int | None] = []

    def way(budget_bytes: int | None) -> AbstractContextManager[None]:
        entered.append(budget_bytes)
        return nullcontext()

    offload._run(way, budget_bytes=12345)
    assert entered == [12345]


def test_recomputation_and_copies_spend_less_memory_and_more_time(
    on_sim: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On sim, in modelled time: the same losses everywhere."""
    monkeypatch.setattr(offload, "SETTLED", 1)
    monkeypatch.setattr(offload, "MEASURED", 1)
    figures = {figure.name: figure for figure in offload_figures()}
    assert tuple(figures) == (*offload.NAMES, offload.HIDDEN)
    assert figures.pop(offload.HIDDEN).how == "a trace needs a CUDA device"
    trained = {name: figure for name, figure in figures.items() if figure.value is not None}
    assert set(figures) - set(trained) <= {"streamed offload"}
    assert all("losses equal" in figure.how for figure in trained.values())
    peaks = {name: float(figure.how.split("%")[0].removeprefix("peak ")) for name, figure in trained.items()}
    assert peaks["plain"] == 100 and trained["plain"].ratio == 1
    for name in ("recompute", "save_on_cpu"):
        ratio = trained[name].ratio
        assert peaks[name] < 100 and ratio is not None and ratio > 1
    assert peaks["session"] <= 100 * offload.BUDGET + 0.5


def test_without_sim_and_cuda_every_way_says_what_is_missing(on_sim: None, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "runtime._sim is not built: run `make build`"
    monkeypatch.setattr("runtime.device.native.why_missing", lambda name: missing if name == "runtime._sim" else None)
    figures = offload_figures()
    names = [*offload.NAMES, offload.HIDDEN]
    assert [(figure.name, figure.value, figure.how) for figure in figures] == [(name, None, missing) for name in names]
