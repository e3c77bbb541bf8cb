"""The figures of ProTrain's search."""

from experiments.bench.layout import ENTRY, GOAL_MS, PAPER_MS, REFERENCE, layout_figures
from experiments.reproduction.entry import read_entry


def test_every_testbed_is_timed_beside_the_reference() -> None:
    small, large, reference = layout_figures(2, models=1)
    assert (small.name, large.name) == ("search, mistral-7b on protrain-3090", "search, mistral-7b on protrain-a100")
    assert reference.name == REFERENCE and reference.value is not None
    for figure in (small, large):
        assert figure.value is not None and figure.ratio == figure.value / reference.value
        assert figure.how.startswith("feasible, 34 blocks, 34 chunks, batch ")
        median_ms = float(figure.how.split("median ")[1].split(" ms")[0])
        assert median_ms >= figure.value * 0.99
        met = "met" if figure.value <= GOAL_MS else "missed"
        assert figure.how.endswith(f"goal of {GOAL_MS} ms {met}, paper {PAPER_MS} ms")


def test_the_models_are_those_of_table_1_on_both_testbeds() -> None:
    entry = read_entry(ENTRY)
    assert len(entry.models) == 10 and list(entry.hardware) == ["protrain-3090", "protrain-a100"]
    assert {row["shape"] for row in entry.parameters["rows"]} == set(entry.models)
