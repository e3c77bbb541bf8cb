"""The Lynx paper's facts on memory, worked out beside the code."""

from pathlib import Path

import pytest

from experiments.reproduction.entry import read_entry
from experiments.reproduction.judge import CONSISTENT
from experiments.reproduction.run import Options, Outcome, run_entry


@pytest.fixture
def run(tmp_path: Path) -> "Run":
    return Run(tmp_path)


class Run:
    """Runs a shipped entry with nothing cached."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def __call__(self, name: str) -> Outcome:
        return run_entry(name, read_entry(name), Options(cache=self.cache))


def value(outcome: Outcome, series: str, label: str | None = None) -> float:
    assert outcome.result is not None, outcome.failure
    found = outcome.result.named(series).points[label or series]
    assert isinstance(found, float | int)
    return found


def test_a_parameter_takes_16_bytes_and_activations_follow_the_closed_formula(run: Run) -> None:
    """sbh(10 + 24/t + 5as/(ht)) a layer (Korthikanti et al.), embedding mask sbh, head 4sbh + 4sbv/t."""
    outcome = run("lynx-section-2.1")
    assert value(outcome, "bytes per parameter") == 16
    s, b, h, a, t, layers, v = 1024, 4, 4096, 32, 8, 24, 51200
    layer = s * b * h * (10 + 24 / t + 5 * a * s / (h * t))
    expected = layers * layer + s * b * h + 4 * s * b * h + 4 * s * b * v / t
    assert value(outcome, "activations", "batch 4") == pytest.approx(expected / 1e9, rel=1e-6)
    assert value(outcome, "activations", "batch 8") == pytest.approx(2 * expected / 1e9, rel=1e-6)


def test_the_papers_facts_on_memory_are_met_where_its_own_rule_meets_them(run: Run) -> None:
    verdicts = {one.name: one.verdict for one in run("lynx-section-2.1").rows}
    assert verdicts == {
        "bytes of states for each parameter": "reproduced",
        "model states": "differs",
        "activations at batch size 4": "reproduced",
        "more memory at batch size 8 than at 4": "reproduced",
    }


def test_7b_at_batch_32_does_not_fit_and_cut_into_single_samples_it_would(run: Run) -> None:
    outcome = run("lynx-section-1")
    assert {one.verdict for one in outcome.rows} == {"within range", "shape holds"}
    for split in ("tp 2 pp 4", "tp 4 pp 2"):
        assert value(outcome, "need over memory", f"{split} microbatches 1") > 1.3
        assert value(outcome, "need over memory", f"{split} microbatches 32") < 0.5


def test_the_papers_values_against_each_other_by_hand(run: Run) -> None:
    outcome = run("lynx-consistency")
    assert value(outcome, "reduction of search time") == pytest.approx(100 - 0.5 / 504)
    assert value(outcome, "gain left to recomputation") == pytest.approx(1.35 / 1.16)
    assert value(outcome, "growth of memory") == pytest.approx(100 * 7.6 / 15.6)
    assert value(outcome, "model states") == pytest.approx(9.4)
    assert [one.verdict for one in outcome.rows] == [CONSISTENT, "differs", "differs", CONSISTENT]
