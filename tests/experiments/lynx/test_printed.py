"""Printed against corrected HEU: the figures are those of the layer room, cell by cell."""

from pathlib import Path

from experiments.lynx.printed import printed_heu
from experiments.reproduction import Cells
from solvers.partition.pipeline import machine_split, pipeline_within
from solvers.recompute.layer.printed import compare_printed


def test_the_table_is_the_rooms_comparison(tmp_path: Path) -> None:
    cells = Cells(tmp_path, hardware_names=("lynx-nvlink",), model_names=("gpt-7b",))
    result = printed_heu(cells, model="gpt-7b", cluster="lynx-nvlink", microbatch_sizes=[8], budgets=[0.3, 0.7])
    machine = cells.hardware("lynx-nvlink")
    pipeline = pipeline_within(cells.shape("gpt-7b"), machine, machine_split(machine), 8, 0.3)
    (row,) = compare_printed([pipeline.heu_problem(0, 8)])
    label = "mbs 8 budget 0.3"
    assert row.printed_us and row.corrected_us and row.violations
    assert result.named("violations of printed").points[label] == row.violations
    assert result.named("printed over corrected").points[label] == row.printed_us / row.corrected_us
    assert result.named("bytes of printed over the budget").points[label] == row.over_bytes
    assert set(result.named("violations of corrected").points.values()) == {0.0}
    assert result.named("printed over corrected").points["mbs 8 budget 0.7"] == "nothing to recompute"
