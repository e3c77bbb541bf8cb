"""Figure 6: curves over one axis, and which points count as near."""

import math
from pathlib import Path

import pytest

from experiments.reproduction import OUT_OF_MEMORY, Cells, Result
from experiments.smartswap import scaling
from experiments.smartswap.scaling import figure_6
from solvers.ir import Limits


def figure(folder: Path, batches: list[int]) -> Result:
    return figure_6(
        Cells(folder, hardware_names=("smartswap-910b",), model_names=("llama-2-7b",)),
        model="llama-2-7b",
        machine="smartswap-910b",
        attention="flash",
        start={"batch": 4, "layers": 5, "sequence": 4096, "hidden": 4096},
        axes={"batch": batches},
        memory={},
        near={"batch": 11},
        milp_time_s=0.5,
    )


@pytest.fixture(autouse=True)
def limits_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of half a second, in which a busy machine gets nowhere."""
    monkeypatch.setattr(scaling, "Limits", lambda **_: Limits(time_s=math.inf, work=0.05))


def test_swapping_is_free_near_the_limit_and_costs_far_beyond_it(tmp_path: Path) -> None:
    result = figure(tmp_path, [8, 13, 30])
    near = result.named("greedy-swap over unlimited, near").numbers()
    assert list(near) == ["batch 8", "batch 13"]  # 13 is the last up to 80/64 of 11
    assert max(near.values()) < 1.02
    assert result.named("original").points["batch 13"] == OUT_OF_MEMORY
    far = {name: result.named(name).numbers()["batch 30"] for name in ("unlimited memory", "greedy-swap", "milp-swap")}
    bound = result.named("bound on every plan").numbers()["batch 30"]
    assert far["unlimited memory"] < bound <= far["milp-swap"] <= far["greedy-swap"]
    gain = result.named("greedy-swap, gain on recomputation").numbers()
    assert gain["batch 8"] > 25


def test_beyond_all_methods_is_out_of_memory(tmp_path: Path) -> None:
    result = figure(tmp_path, [60])
    for name in ("original", "full recomputation", "greedy-swap", "capuchin-swap", "milp-swap", "bound on every plan"):
        assert result.named(name).points == {"batch 60": OUT_OF_MEMORY}
    assert result.named("greedy-swap over unlimited").points == {"batch 60": OUT_OF_MEMORY}
