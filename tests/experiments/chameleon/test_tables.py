"""The compute functions of the paper's tables, on entries as shipped and on cases that can be told by hand."""

from pathlib import Path
from typing import Any

import pytest

from experiments.chameleon import collective_rounds, estimator, examples, retention, scalability, simulation, transfers
from experiments.reproduction import Cells, Result
from experiments.reproduction.entry import read_entry
from experiments.reproduction.judge import DIFFERS, FAILED, NO_REASON, OURS_ONLY, judge
from experiments.reproduction.run import compute_function

QUICK = ["figure-3", "figure-4", "memory", "collectives", "weight-transfer", "consistency", "estimator", "retention"]


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    return Cells(tmp_path, "test", 0, ("ascend-910b", "smartswap-910b"), ("llama-2-7b",))


def computed(cells: Cells, name: str, **changes: Any) -> Result:
    entry = read_entry(f"chameleon-{name}")
    result = compute_function(entry)(cells, **{**entry.parameters, **changes})
    assert [cell.failure for cell in cells.done if cell.failure] == []
    return result


@pytest.mark.parametrize("name", QUICK)
def test_no_row_fails_or_differs_without_a_reason(cells: Cells, name: str) -> None:
    for row in judge(read_entry(f"chameleon-{name}"), computed(cells, name)):
        assert row.verdict != FAILED, row
        assert row.verdict != DIFFERS or NO_REASON not in (row.reason or ""), row


def test_what_was_chosen_to_meet_the_paper_is_no_reproduction(cells: Cells) -> None:
    """[2, 2, 3] needs the least depth that was taken from it; without it four pipelines come out."""
    entry = read_entry("chameleon-memory")
    rows = judge(entry, computed(cells, "memory", layers=[16]))
    assert [one.value for one in entry.fitted] == [entry.parameters["least_depth"]]
    stages = [row for row in rows if row.name.startswith("stages of")]
    assert [row.ours for row in stages] == [(2, 2), (2, 2), (3, 3)]
    assert {row.verdict for row in stages} == {OURS_ONLY}
    (free,) = (row for row in rows if row.name.startswith("pipelines where"))
    assert (free.ours, free.verdict) == ((4, 4), DIFFERS)


def test_figure_3_moves_a_layer_less_if_the_last_stage_failed(cells: Cells) -> None:
    moved = computed(cells, "figure-3").named("layers moved").points
    assert [moved[f"node {node} fails"] for node in range(9)] == [3, 3, 2] * 3


def test_figure_4_has_its_six_all_reduces(cells: Cells) -> None:
    result = computed(cells, "figure-4")
    assert result.named("all-reduces").points == {"before": 4, "after": 6}
    assert result.named("rounds of layers").points == {"before": 3, "after": 4}
    alike = examples.figure_4(cells, before=[[2, 2]], after=[[2, 2], [1, 3]])
    assert alike.named("all-reduces").points["after"] == 3


def test_a_bare_symmetric_step_keeps_what_the_closed_form_says(cells: Cells) -> None:
    """F3: (8 + 3) stages' times before; three groups of one stage each, 22 microbatches at most, after."""
    result = computed(cells, "retention", batches=[64], gb_per_s=[25.0])
    assert result.named("rerouting").points["8 to 7 batch 64"] == pytest.approx(100 * (32 + 3) / (64 + 3))
    assert result.named("exact").points["32 to 24 batch 64"] == pytest.approx(75.0, abs=0.5)
    assert all(kept < 100 for kept in result.named("exact").numbers().values())


def test_what_a_fixed_part_would_have_to_be(cells: Cells) -> None:
    """(T + x) / (T' + x) = r, solved for x over T."""
    result = computed(cells, "retention", batches=[16], gb_per_s=[25.0])
    kept = result.named("exact").numbers("8 to 7*")["8 to 7 batch 16"] / 100
    x = result.named("fixed part that the paper's value needs, of the bare step").numbers()["8 to 7 batch 16"] / 100
    assert (1 + x) / (1 / kept + x) == pytest.approx(0.9622, abs=1e-4)


def test_one_batch_and_one_rate_are_as_far_as_their_farthest_case(cells: Cells) -> None:
    result = computed(cells, "retention", batches=[16], gb_per_s=[25.0])
    paper = {"8 to 7": 96.22, "16 to 15": 89.0, "32 to 24": 74.38}
    kept = result.named("whole, algorithm 1").numbers()
    off = [100 * abs(kept[f"{case} batch 16 at 25 GB/s"] / value - 1) for case, value in paper.items()]
    farthest = result.named("farthest from the paper of all cases, algorithm 1").points
    assert farthest == {"batch 16 at 25 GB/s": pytest.approx(max(off))}


def test_rounds_are_between_the_fullest_stage_and_one_by_one(cells: Cells) -> None:
    result = computed(cells, "collectives", layers=[16], batches=[16], gb_per_s=[1.0])
    assert result.named("rounds, layer order").points == {"16 layers": 8}
    assert result.named("rounds, merged").points == {"16 layers": 11}
    share = result.named("collectives of a serial step").numbers()["16 layers batch 16 at 1 GB/s"]
    saved = result.named("step saved, layer order").numbers()["16 layers batch 16 at 1 GB/s"]
    assert saved == pytest.approx(share / 2)


def test_nothing_moves_faster_than_what_is_restored(cells: Cells) -> None:
    result = computed(cells, "weight-transfer", layers=[16])
    best = result.named("transfer, restored").numbers()
    for way in ("by number", "in place", "kuhn-munkres"):
        assert all(best[label] <= seconds for label, seconds in result.named(f"transfer, {way}").numbers().items())
    assert best == result.named("transfer, least possible").numbers()


def test_the_papers_recovery_splits_as_it_says(cells: Cells) -> None:
    result = computed(cells, "consistency")
    parts = [result.named(name).numbers()[name] for name in ("transfer before", "fixed part of the recovery")]
    assert sum(parts) == pytest.approx(11.2)


def test_formulas_are_optimistic_or_exact_for_uniform_stages(cells: Cells) -> None:
    result = computed(cells, "estimator", grids=[[4, 4]], microbatches=[8, 9])
    assert set(result.named("error of F3, no failure").numbers().values()) == {0.0}
    assert all(error <= 0 for error in result.named("error of F6, one failure").numbers().values())


def test_the_exact_planner_is_optimal_and_algorithm_1_never_better(cells: Cells) -> None:
    result = computed(cells, "algorithm-1", grids=["4x2x8"], losses=[2], draws=1)
    labels = ["8 devices lost 2 head", "8 devices lost 2 plain"]
    assert list(result.named("gap of objective, exact").points) == labels
    assert all(gap == 0 for gap in result.named("gap of objective, exact").numbers().values())
    assert all(gap >= 0 for gap in result.named("gap of objective, algorithm 1").numbers().values())
    assert all(seconds > 0 for seconds in result.named("processor time of the step alone, exact").numbers().values())
    assert result.notes[0] == "The exact planner proves its answer, best or impossible, in 2 of 2 cells."


def test_worlds_change_what_they_say(cells: Cells) -> None:
    worlds = {"as assumed": {}, "slow oobleck": {"oobleck": {"restart_s": 300}}, "all slow": {"restart_s": 300}}
    result = computed(cells, "sensitivity", worlds=worlds, seeds=3)
    speeds = {name: result.named(f"samples/s, {name}").numbers() for name in ("chameleon", "oobleck", "recycle")}
    assert speeds["oobleck"]["slow oobleck"] < speeds["oobleck"]["as assumed"]
    assert speeds["chameleon"]["slow oobleck"] == speeds["chameleon"]["as assumed"]
    assert speeds["recycle"]["all slow"] <= speeds["recycle"]["as assumed"]
    assert speeds["chameleon"]["all slow"] < speeds["chameleon"]["as assumed"]
    over = result.named("chameleon over oobleck, mean").numbers()
    assert over["slow oobleck"] > over["as assumed"]
    best = result.named("chameleon over the fastest of the others, mean").numbers()
    assert best["as assumed"] in (
        over["as assumed"],
        result.named("chameleon over recycle, mean").numbers()["as assumed"],
    )


def test_worlds_in_which_the_papers_ratios_lie_are_named(cells: Cells) -> None:
    """A ratio that is ours in one world, and one that no world comes near."""
    ours = computed(cells, "sensitivity", worlds={"as assumed": {}}, seeds=3).named("chameleon over oobleck, mean")
    near = {"oobleck": round(ours.numbers()["as assumed"], 3), "recycle": 9.0}
    worlds = {"as assumed": {}, "slow oobleck": {"oobleck": {"restart_s": 3000}}}
    _, oobleck, recycle = computed(cells, "sensitivity", worlds=worlds, seeds=3, near=near).notes
    assert oobleck.endswith(
        "of the mean in “as assumed”; elsewhere between the 5th and the 95th percentile in no world."
    )
    assert recycle.startswith("9, the paper's chameleon over recycle: within 3 % of the mean in no world;")


def test_compute_functions_are_those_of_this_room() -> None:
    rooms = {examples, retention, estimator, transfers, collective_rounds, scalability, simulation}
    names = {read_entry(f"chameleon-{name}").function()[0] for name in [*QUICK, "scalability", "simulation"]}
    assert names <= {room.__name__ for room in rooms}
