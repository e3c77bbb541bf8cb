"""A race on sim: every way trains the same, spends what it promises, and says what it took."""

import functools
import time
from pathlib import Path

import pytest
import torch

from experiments.bench.offload import rivals, run
from experiments.bench.offload.model import RaceShape
from experiments.bench.offload.planned import Plans
from experiments.bench.offload.race import race
from experiments.bench.offload.run import Ran, Way
from experiments.bench.offload.ways import PLAIN, few, ways
from solvers.ir.errors import InvalidInput
from solvers.ir.solution import Limits
from tests.accelerators import prepare_sim

SHAPE = RaceShape(layers=3, width=32, heads=2, context=64, batch=8)
SHARES = (0.75, 0.45)
"""Fewer budgets than in earnest: sessions take long to settle."""
REFUSED = prepare_sim()
pytestmark = pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))


@functools.cache
def raced() -> dict[str, Ran]:
    """Everybody once, plans by the quick solver; sessions settle as they do in earnest."""
    rows = race("sim", SHAPE, ways(SHARES), Plans(limits=Limits(work=0.05), solver="greedy-swap"))
    return {row.way: row for row in rows}


def test_everybody_is_there_and_says_why_not() -> None:
    rows = raced()
    assert list(rows) == [way.name for way in ways(SHARES)]
    absent = {name for name, row in rows.items() if row.error is not None}
    least = {"joint, 45%", "recomputed by heu, 45%"}  # of what blocks need at once
    assert absent <= {"trl, streamed", "torchtune, streamed", *least}
    assert all((rows[name].error or "InfeasibleBudget: ").startswith("InfeasibleBudget: ") for name in least)
    assert all(rows[name].error == f"InvalidInput: {name.split(',')[0]} is not installed" for name in absent - least)


def test_everybody_computes_the_same() -> None:
    rows = raced()
    plain = rows["plain"]
    assert len(plain.losses) == run.SETTLED + run.MEASURED == max(len(row.losses) for row in rows.values())
    assert plain.losses[-1] < plain.losses[0]
    assert all(row.equals(plain) for row in rows.values() if row.error is None)


def test_recomputation_takes_time_for_memory_in_the_order_of_what_it_keeps() -> None:
    rows = raced()
    order = ["full recomputation", "torch, keep attention", "torch, keep products", "plain"]
    peaks = [rows[name].peak_bytes or 0 for name in order]
    steps = [rows[name].step_us or 0 for name in order]
    assert peaks == sorted(peaks) and peaks[0] < 0.8 * peaks[-1]
    assert steps == sorted(steps, reverse=True) and steps[0] > 1.05 * steps[-1]


def test_planned_recomputation_keeps_its_bytes_in_use_and_says_what_it_did() -> None:
    (heu,) = [way for way in ways() if way.solver == "heu"]
    plain, recomputed = race("sim", SHAPE, [PLAIN, heu], Plans(limits=Limits()))
    for row, share in ((recomputed, 0.6), (raced()["joint, 75%"], 0.75)):
        whole = plain.peak_bytes
        assert whole is not None and (row.peak_bytes or 0) <= int(share * whole)
        assert f"budget {int(share * whole)}, predicted " in row.said
    assert "passes " in row.said and (" left, " in row.said or "ahead" in row.said)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("kind", ["session", "executed plan"])
def test_budgets_are_shares_of_the_plain_peak_and_kept(kind: str, share: float) -> None:
    rows = raced()
    row, whole = rows[f"{kind}, {share:.0%}"], rows["plain"].reserved_bytes
    assert whole is not None and row.pinned_bytes is not None and row.hidden is not None
    assert (row.reserved_bytes or 0) <= int(share * whole)
    assert row.pinned_bytes > 0 and 0 < row.hidden <= 1
    assert row.settled_retries == 0
    assert row.said.startswith("stage " if kind == "session" else "greedy-swap, ")


def test_the_tighter_budget_takes_longer() -> None:
    rows = raced()
    for kind in ("session", "executed plan"):
        steps = [rows[f"{kind}, {share:.0%}"].step_us or 0 for share in SHARES]
        assert steps == sorted(steps) and steps[0] >= (rows["plain"].step_us or 0)


def test_a_way_that_fails_is_a_row_and_the_next_one_runs() -> None:
    def clumsy(_: torch.nn.Module) -> torch.nn.Module:
        raise RuntimeError("no\nluck")

    rows = race("sim", SHAPE, [Way("clumsy", wrap=clumsy), Way("session", kind="session", share=0.5), PLAIN])
    assert rows[0].error == "RuntimeError: no luck"
    assert rows[1].error == "not run: the plain run gave no peak to take a share of"
    assert rows[2].error is None


def test_nothing_begins_after_the_time_is_over() -> None:
    told: list[Ran] = []
    rows = race("sim", SHAPE, few(), tell=told.append, until=time.monotonic() - 1)
    assert {row.error for row in rows} == {"not run: the time was over"}
    assert told == rows and len(rows) == 4


def test_a_library_is_loaded_from_its_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `__init__` would fail, as it imports what is not there; offloading has a file of its own."""
    folder = tmp_path / "trl" / "models"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("import a_module_that_nobody_has\n")
    (folder / "activation_offloading.py").write_text(
        "import contextlib\n\n\nclass OffloadActivations(contextlib.nullcontext):\n"
        "    def __init__(self, use_pin_memory, use_streams):\n        super().__init__()\n        self.seen = []\n\n"
        "    def update_model_params(self, model):\n        self.seen.append(model)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model = torch.nn.Linear(1, 1)
    around = rivals.trl(model)
    assert around() is around()  # one manager for the whole run, as its trainer has it
    assert around().seen == [model]  # type: ignore[attr-defined]
    (folder / "activation_offloading.py").write_text("import a_module_that_nobody_has\n")
    with pytest.raises(InvalidInput, match=r"trl's offloading does not import .*a_module_that_nobody_has"):
        rivals.trl(model)
    (folder / "activation_offloading.py").unlink()
    with pytest.raises(InvalidInput, match=r"trl has no models/activation_offloading\.py: this release keeps it"):
        rivals.trl(model)


def test_a_library_that_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "TRL", ("a_library_that_nobody_has", "x.py"))
    with pytest.raises(InvalidInput, match="a_library_that_nobody_has is not installed"):
        rivals.trl(torch.nn.Linear(1, 1))
