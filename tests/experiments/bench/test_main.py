"""The command: which sections run with what, what is printed and written, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.bench import __main__ as command
from experiments.bench.__main__ import INSTANCE, SECTIONS
from experiments.bench.figure import Figure
from experiments.bench.graph import shipped_instances
from tests.experiments.bench.console import call
from tests.experiments.commands.console import refused, write_problem

FUNCTIONS = {
    "swap": "swap.swap_figures",
    "layer": "layer.layer_figures",
    "graph": "graph.graph_figures",
    "records": "records.record_figures",
    "matching": "matching.matching_figures",
    "tracing": "tracing.tracing_figures",
    "offload": "offload.offload_figures",
    "replan": "replan.replan_figures",
    "deep": "deep.deep_figures",
    "layout": "layout.layout_figures",
    "prediction": "prediction.prediction_figures",
    "tape": "tape.tape_figures",
}
Asked = list[tuple[str, tuple[object, ...]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Every section answers one figure at once; what each was asked, in order."""
    found: Asked = []

    def answering(section: str) -> Callable[..., list[Figure]]:
        def figures(*arguments: object) -> list[Figure]:
            found.append((section, arguments))
            return [Figure(f"{section}, time", 12.5, "ms", 0.25, "goal of 50 ms", f"of {section}")]

        return figures

    for section, function in FUNCTIONS.items():
        monkeypatch.setattr(f"experiments.bench.{function}", answering(section))
    monkeypatch.setattr(command, "machine", lambda: {"processor": "abacus", "cores": 3, "torch": "none"})
    return found


def test_every_section_runs_once_in_order_with_what_the_help_promises(asked: Asked) -> None:
    """Ten seconds and a thread for milp-swap, thirty and two for opt, 5 runs, 60 rounds."""
    assert call().code == 0
    assert asked == [
        ("swap", (INSTANCE, 10.0, 1)),
        ("layer", (5,)),
        ("graph", (shipped_instances(), 30.0, 2)),
        ("records", (60,)),
        ("matching", (60,)),
        ("tracing", (60,)),
        ("offload", ()),
        ("replan", (5,)),
        ("deep", ()),
        ("layout", (5,)),
        ("prediction", ()),
        ("tape", (60,)),
    ]
    assert tuple(FUNCTIONS) == SECTIONS


def test_clusters_of_the_section_deep_are_chosen_by_seed(asked: Asked) -> None:
    assert call("--only", "deep", "--seeds", 7, 9).code == 0
    assert asked == [("deep", (range(7, 10),))]


def test_each_setting_reaches_the_sections_that_it_is_for(asked: Asked, tmp_path: Path) -> None:
    mine, first, second = tmp_path / "mine.json", tmp_path / "1.json", tmp_path / "2.json"
    flags = ("--time-limit", 3, "--threads", 4, "--graph-time-limit", 7, "--graph-threads", 5, "--runs", 2)
    more = ("--rounds", 9, "--instance", mine, "--graph", first, "--graph", second)
    assert call(*flags, *more).code == 0
    assert dict(asked) == {
        "swap": (mine, 3.0, 4),
        "layer": (2,),
        "graph": ([first, second], 7.0, 5),
        "records": (9,),
        "matching": (9,),
        "tracing": (9,),
        "offload": (),
        "replan": (2,),
        "deep": (),
        "layout": (2,),
        "prediction": (),
        "tape": (9,),
    }


def test_only_the_chosen_sections_run_and_their_figures_are_a_table(asked: Asked) -> None:
    outcome = call("--only", "layout", "--only", "swap")
    assert [section for section, _ in asked] == ["layout", "swap"]
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "bench on processor abacus, cores 3, torch none",
        "  figure        value    ratio                  how obtained",
        "  layout, time  12.5 ms  0.250 x goal of 50 ms  of layout",
        "  swap, time    12.5 ms  0.250 x goal of 50 ms  of swap",
    ]


def test_the_file_holds_the_figures_unrounded_and_the_machine(asked: Asked, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    assert call("--only", "replan", "--json", out).code == 0
    figure = {
        "name": "replan, time",
        "value": 12.5,
        "unit": "ms",
        "ratio": 0.25,
        "ratio_to": "goal of 50 ms",
        "how": "of replan",
    }
    assert json.loads(out.read_text()) == {
        "machine": {"processor": "abacus", "cores": 3, "torch": "none"},
        "figures": [figure],
    }


def test_the_file_names_nothing_of_the_machine_but_its_kind(tmp_path: Path) -> None:
    problem, out = write_problem(tmp_path / "p.json"), tmp_path / "bench.json"
    outcome = call("--only", "swap", "--instance", problem, "--time-limit", "5", "--json", out)
    assert (outcome.code, outcome.err) == (0, "")
    raw = json.loads(out.read_text())
    assert set(raw["machine"]) == {"processor", "cores", "python", "torch"}
    for figure in raw["figures"]:
        assert figure["name"] in outcome.out
        assert figure["how"] in outcome.out


def test_an_unknown_section_is_refused_with_the_names_of_all() -> None:
    sentence = refused(call("--only", "everything"))
    assert "'everything' is not one of 'swap', 'layer', 'graph', 'records', 'matching', 'tracing'" in sentence
    assert sentence.endswith("see bench --help")


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--time-limit", 0, "0 is not in the range 0.01<=x<=3600"),
        ("--graph-time-limit", 3601, "3601.0 is not in the range 0.01<=x<=3600"),
        ("--threads", 0, "0 is not in the range 1<=x<=1024"),
        ("--graph-threads", 1025, "1025 is not in the range 1<=x<=1024"),
        ("--runs", 0, "0 is not in the range 1<=x<=1000"),
        ("--rounds", 1, "1 is not in the range 2<=x<=100000"),  # quartiles need two differences
    ],
)
def test_settings_out_of_range_are_refused(asked: Asked, flag: str, value: int, words: str) -> None:
    sentence = refused(call(flag, value))
    assert flag in sentence
    assert words in sentence
    assert asked == []


def test_files_are_judged_before_anything_is_measured(asked: Asked, tmp_path: Path) -> None:
    problem = write_problem(tmp_path / "p.json")
    for flag in ("--instance", "--graph"):
        sentence = refused(call(flag, problem, "--json", problem))
        assert sentence == f"--json {problem} would write over the input {problem}: choose another place"
    assert "there is no flag '--jsn': did you mean '--json'?" in refused(call("--jsn", "x"))
    assert asked == []


def test_an_instance_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in refused(call("--only", "swap", "--instance", tmp_path / "none.json"))


def test_the_command_is_what_the_module_runs(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "--only", "records"])
    assert command.main() == 0
    assert asked == [("records", (60,))]
