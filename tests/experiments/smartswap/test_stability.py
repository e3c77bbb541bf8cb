"""Figure 7: what its series say of runs that are known, and a table of a few steps."""

from pathlib import Path
from typing import Any

import pytest

from experiments.reproduction import Cells
from experiments.smartswap import stability
from experiments.smartswap.stability import figure_7
from experiments.stability.record import Entry, Run
from experiments.stability.settings import Policy
from runtime.device.native import why_missing

PARAMETERS: dict[str, Any] = {
    "hardware": "sim-tiny",
    "model": {"layers": 2, "width": 32, "heads": 2, "context": 32, "batch": 4},
    "scaling": {"initial": 65536.0, "growth_interval": 50},
    "steps": 4,
    "validate_every": 2,
    "validation_batches": 1,
    "budget_fraction": 0.8,
}


def known(policy: Policy, *losses: float, reason: str | None = None, peak: int = 1000, **more: Any) -> Run:
    entries = tuple(Entry(number, loss, None, number == 3, 1.0, 100.0) for number, loss in enumerate(losses, 1))
    failed_at = None if reason is None else len(entries) + 1
    return Run(policy=policy, entries=entries, peak_bytes=peak, reason=reason, failed_at=failed_at, **more)


def test_series_say_where_runs_differ_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"regenerations": 1, "returns": 4, "in_time": 20, "fallbacks": 3, "passive": 2}
    runs = {
        Policy.unlimited: known(Policy.unlimited, 4, 3, 2, 1, parameters="a"),
        Policy.features: known(Policy.features, 4, 3, 2, 1, parameters="a", peak=800, session=counts),
        Policy.index_guard: known(Policy.index_guard, 4, 3, 5, 1, parameters="b", peak=800, session=counts),
        Policy.index: known(Policy.index, 4, 3, reason="RuntimeError: it is not there", session=counts),
        Policy.none: known(Policy.none, reason="no room", out_of_memory=True),
    }
    asked = []

    def executed(policy: Policy, settings: Any, world: Any, budget_bytes: int | None, progress: Any) -> Run:
        asked.append((policy, budget_bytes))
        return runs[policy]

    monkeypatch.setattr(stability, "execute", executed)
    cells = Cells(tmp_path, hardware_names=("sim-tiny",))
    result = figure_7(cells, **PARAMETERS, policies=["none", "features", "index_guard", "index"])
    assert asked[:2] == [(Policy.unlimited, None), (Policy.none, 800)]
    points = {one.name: one.points for one in result.series}
    equal = {"none": 0.0, "features": 100.0, "index_guard": 50.0, "index": 50.0}
    assert points["losses equal to the unlimited run's"] == equal
    assert points["ends at step"] == {"none": 1.0, "features": "never", "index_guard": "never", "index": 3.0}
    ends = {"none": "out of memory", "features": "to the end", "index_guard": "to the end", "index": "crash"}
    assert points["how it ends"] == ends
    assert points["parameters equal"] == {"none": "no", "features": "yes", "index_guard": "no", "index": "no"}
    assert points["peak over unlimited"]["features"] == 0.8
    assert points["step over unlimited"] == {
        "none": "ended early",
        "features": 1.0,
        "index_guard": 1.0,
        "index": "ended early",
    }
    assert points["skipped steps"] == {"unlimited": 1.0}
    assert points["swaps brought back on demand"] == {"features": 3.0, "index_guard": 3.0, "index": 3.0}
    shares = points["swaps brought back in time of all brought back"]
    assert shares == dict.fromkeys(("features", "index_guard", "index"), pytest.approx(100 * 20 / 23))
    assert "index ends at step 3: RuntimeError: it is not there" in result.notes


@pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")
def test_a_few_real_steps_make_the_table(tmp_path: Path) -> None:
    cells = Cells(tmp_path, hardware_names=("sim-tiny",))
    result = figure_7(cells, **PARAMETERS, policies=["none", "recompute", "features"])
    assert result.failed == 0
    equal = result.named("losses equal to the unlimited run's").numbers()
    assert equal["recompute"] == equal["features"] == 100 > equal["none"]
    assert result.named("how it ends").points["none"] == "out of memory"
    assert result.named("passive swaps").numbers()["features"] > 0
