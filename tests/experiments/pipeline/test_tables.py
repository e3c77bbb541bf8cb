"""Tables of rows written down here, cell by cell, and stages in words."""

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from experiments.pipeline.tables import cell_tables, stage_lines, stage_table, system_table
from solvers.ir import Row

STAGES = [
    {
        "layers": 9,
        "critical_us": 1500,
        "least_critical_us": 1250,
        "forward_hidden_us": 250,
        "backward_hidden_us": 500,
        "stored_bytes": 1536 * 2**20,
        "groups": [
            {"layers": 8, "keep": ["qkv", "out"], "in all-reduce": ["fc"], "on the critical path": ["scores", "gelu"]},
            {"layers": 1, "keep": []},
        ],
    },
    {
        "layers": 7,
        "critical_us": 0,
        "least_critical_us": None,
        "forward_hidden_us": 0,
        "backward_hidden_us": 0,
        "stored_bytes": 0,
        "groups": [{"layers": 7, "keep": ["qkv"]}],
    },
]
FIGURES: dict[str, Any] = {
    "samples_per_s": 12.5,
    "makespan_us": 1_000_000,
    "layers": [9, 7],
    "critical_us": [150_000, 50_000],
    "window_hidden_us": [60_000, 0],
    "stall_hidden_us": [0, 20_000],
    "bubble_us": [100_000, 300_000],
    "peak_bytes": [3 * 2**30, 5 * 2**29],
    "budget_bytes": 4 * 2**30,
    "gap": 0.125,
    "overhead_gap": 0.5,
    "solve_time_s": 0.0345,
    "stages": STAGES,
}


def row(
    policy: str,
    figures: Mapping[str, Any],
    outcome: Literal["ok", "infeasible", "error"] = "ok",
    cell: Mapping[str, object] | None = None,
) -> Row:
    return Row(
        experiment="e",
        asked={"policy": policy, **(cell or {})},
        outcome=outcome,
        figures=dict(figures),
        provenance="by hand",
        commit=None,
        seed=0,
    )


UNFIT = row("greedy", {"budget_bytes": 1, "solve_time_s": 1.0}, "infeasible")


def test_shares_are_of_the_time_of_all_stages() -> None:
    """A second on two stages: 200 ms of 2 s exposed, 60 + 20 hidden, 400 bubbles; speeds over the first known."""
    faster = row("fast", {**FIGURES, "samples_per_s": 15.0, "gap": None})
    table = system_table([UNFIT, row("slow", FIGURES), faster], "a model")
    assert table.title == "Systems: a model"
    unfit, slow, fast = (dict(zip(table.head, line, strict=True)) for line in table.body)
    assert slow == {
        "system": "slow",
        "layers": "9-7",
        "step (ms)": "1,000.0",
        "samples/s": "12.50",
        "over slow": "1.000",
        "gap": "12.5 %",
        "overhead gap": "50.0 %",
        "exposed": "10.0 %",
        "hidden": "4.0 %",
        "bubbles": "20.0 %",
        "fullest (GiB)": "3.0",
        "found in (ms)": "34",
    }
    assert (fast["over slow"], fast["gap"]) == ("1.200", "–")
    assert {name for name, cell in unfit.items() if cell != "–"} == {"system", "found in (ms)"}
    assert unfit["found in (ms)"] == "1000"


def test_where_nothing_fits_there_is_nothing_to_be_over() -> None:
    assert system_table([UNFIT], "").head[4] == "over –"


def test_a_stage_is_a_line_in_units_that_can_be_read() -> None:
    """Milliseconds, GiB of a peak, MiB of what a microbatch keeps, bubbles of the step."""
    table = stage_table(row("mine", FIGURES))
    assert table.title == "Stages of mine"
    assert table.note.startswith("A device has 4.00 GiB.")
    first, second = (dict(zip(table.head, line, strict=True)) for line in table.body)
    assert first == {
        "stage": "0",
        "layers": "9",
        "peak (GiB)": "3.00",
        "kept (MiB)": "1,536",
        "hidden forward (ms)": "0.25",
        "hidden backward (ms)": "0.50",
        "exposed (ms)": "1.50",
        "bound (ms)": "1.25",
        "bubble": "10.0 %",
    }
    assert (second["peak (GiB)"], second["bound (ms)"], second["bubble"]) == ("2.50", "–", "30.0 %")


def test_stages_in_words_say_what_is_kept_and_what_is_done_again_where() -> None:
    assert stage_lines(row("mine", FIGURES)) == [
        "stage 0, 8 layers: keep qkv, out; again in all-reduce: fc; again on the critical path: scores, gelu",
        "stage 0, 1 layer: keep nothing but its input; nothing again",
        "stage 1, 7 layers: keep qkv; nothing again",
    ]


def test_neighbours_that_do_the_same_share_their_lines_others_do_not() -> None:
    stages = [STAGES[1], STAGES[1], STAGES[0], STAGES[1]]
    lines = stage_lines(row("mine", {**FIGURES, "stages": stages}))
    assert [line.split(",")[0] for line in lines] == ["stages 0 to 1", "stage 2", "stage 2", "stage 3"]


def test_a_sweep_is_a_grid_of_systems_in_which_failures_are_dashes() -> None:
    rows = [
        row("a", FIGURES, cell={"cut.tensor": 4, "gb": 2.50}),
        row("b", {}, "infeasible", cell={"cut.tensor": 4, "gb": 2.50}),
        row("b", {**FIGURES, "samples_per_s": 7.0, "gap": 0.02}, cell={"cut.tensor": 8, "gb": 2.50}),
        row("all", {}, "error", cell={"cut.tensor": 9, "gb": 2.50}),
    ]
    speeds, gaps = cell_tables(rows, ["cut.tensor", "gb"])
    assert speeds.head == gaps.head == ("tensor", "gb", "a", "b")
    assert speeds.body == (("4", "2.5", "12.50", "–"), ("8", "2.5", "–", "7.00"), ("9", "2.5", "–", "–"))
    assert gaps.body == (("4", "2.5", "12.5 %", "–"), ("8", "2.5", "–", "2.0 %"), ("9", "2.5", "–", "–"))
    assert "samples/s" in speeds.title and "Gap" in gaps.title


@pytest.mark.parametrize(("value", "cell"), [(0.0, "0.0 %"), (1.0, "100.0 %")])
def test_a_gap_of_nothing_is_a_gap(value: float, cell: str) -> None:
    _, gaps = cell_tables([row("a", {**FIGURES, "gap": value})], [])
    assert gaps.body == ((cell,),)
