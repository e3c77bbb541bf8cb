"""The paper against itself, how far models reach, and what the search costs."""

from pathlib import Path
from typing import Any

import pytest

from experiments.protrain.setting import testbed as place_of
from experiments.protrain.sizes import can_hold
from experiments.reproduction import Cells
from experiments.reproduction.entry import read_entry
from experiments.reproduction.judge import CONSISTENT, HOLDS, WITHIN, judge
from experiments.rows import read_rows
from experiments.shapes import read_shape
from tests.experiments.protrain.test_tables import computed

LLAMA = {"label": "13B", "shape": "llama-2-13b", "hardware": "protrain-a100", "ranks": 4}
ROOT = Path(__file__).resolve().parents[3]


def fits(tmp_path: Path, system: str, sequence: int, shape: str, ranks: int = 1, batch: int = 1) -> bool:
    """Asked of the system's smallest plan alone."""
    cells = Cells(tmp_path, "test", 0, ("protrain-a100",), ())
    place = place_of(cells, "protrain-a100", ranks=ranks, sequence=sequence)
    return can_hold(system, place.problem(read_shape(shape), batch))


def test_the_papers_ratios_are_those_of_its_values(tmp_path: Path) -> None:
    result = computed(tmp_path, "consistency")
    assert {row.verdict for row in judge(read_entry("protrain-consistency"), result)} == {CONSISTENT}
    assert result.named("ratio").points["size over Colossal-AI, RTX 3090 x4"] == 37 / 25


@pytest.mark.parametrize("system", ["protrain", "colossal"])
def test_the_largest_batch_fits_and_the_next_does_not(tmp_path: Path, system: str) -> None:
    result = computed(tmp_path, "section-5.3.3", rows=[LLAMA], systems=[system])
    found = int(result.named("largest batch").numbers()[f"13B {system}"])
    assert fits(tmp_path, system, 1024, "llama-2-13b", 4, found)
    assert not fits(tmp_path, system, 1024, "llama-2-13b", 4, found + 4)
    capped = computed(tmp_path / "capped", "section-5.3.3", rows=[LLAMA], systems=[system], most=40)
    assert capped.named("largest batch").numbers()[f"13B {system}"] == 40


def test_the_longest_sequence_fits_and_the_next_does_not(tmp_path: Path) -> None:
    result = computed(tmp_path, "section-5.1")
    found = int(result.named("longest sequence").numbers()["GPT2-75B on A100 x1"])
    assert found % 1024 == 0
    assert fits(tmp_path, "protrain", found, "gpt2-75b") and not fits(tmp_path, "protrain", found + 1024, "gpt2-75b")


def test_predicted_steps_are_those_of_the_kept_rows(tmp_path: Path) -> None:
    result = computed(tmp_path, "figure-6")
    rows = [row for row in read_rows(ROOT / "experiments/results/protrain/predicted.jsonl") if not row.asked["noise"]]
    errors = result.named("error of the step").numbers()
    assert len(errors) == len(rows)
    one = rows[3]
    expected: Any = one.figures["predicted_step_us"] / one.figures["step_us"] - 1
    assert errors[f"{one.asked['model']}, {one.asked['policy']}"] == pytest.approx(100 * expected)
    assert judge(read_entry("protrain-figure-6"), result)[0].verdict == WITHIN
    assert all(str(one.commit) in note for note in result.notes)


def test_the_search_takes_time(tmp_path: Path) -> None:
    row = {"label": "7B", "shape": "mistral-7b", "hardware": "protrain-3090", "ranks": 4, "batch": 4}
    result = computed(tmp_path, "section-5.3.4", rows=[row], repeats=1)
    (spent,) = result.named("search time").numbers().values()
    assert 0 < spent == result.named("search time, mean").numbers()["search time, mean"]
    assert HOLDS not in {row.verdict for row in judge(read_entry("protrain-section-5.3.4"), result)}
