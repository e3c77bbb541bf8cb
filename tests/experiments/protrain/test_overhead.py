"""The time of the search: figures of one small model, whatever the machine."""

from pathlib import Path

from tests.experiments.protrain.test_tables import computed


def test_times_are_milliseconds_of_work_that_was_done(tmp_path: Path) -> None:
    row = {"label": "10B", "shape": "gpt2-10b", "hardware": "protrain-3090"}
    result = computed(tmp_path, "section-5.3.4", rows=[row], batches=[8, 64], repeats=2)
    for name in ("search", "search, processor time", "making the problem"):
        found = result.named(name).numbers()
        assert list(found) == ["10B batch 8", "10B batch 64"]
        assert all(0.1 < value < 10_000 for value in found.values()), name
