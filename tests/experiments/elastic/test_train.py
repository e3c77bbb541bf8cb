"""The command: its row, table and event log, one sentence for what cannot be trained, and exit codes."""

import json
import socket
from pathlib import Path

import msgspec
import pytest

from experiments.cli import main
from experiments.rows import read_rows
from runtime.elastic import PARTS
from solvers.check.replan.judge import pipeline_us
from solvers.ir.replan import ReplanProblem

WORDS = ["train", "experiment=elastic", "job=tests.runtime.elastic.jobs:small", "hang_s=60", "timeout_s=60"]


def test_a_run_leaves_its_row_its_table_and_the_event_log(tmp_path: Path) -> None:
    assert main([*WORDS, "nodes=4", "steps=6", "kills=1@2.backward", f"run_dir={tmp_path}"]) == 0
    (row,) = read_rows(tmp_path / "rows.jsonl")
    found = row.figures
    assert found["equal_losses"] and found["equal_parameters"] and found["replicas_equal"]
    assert found["nodes"] == [4, 3]
    assert set(found["recovery_us"]) == set(found["recoveries"][0]["recovery_us"]) == set(PARTS)
    assert [one["nodes"] for one in found["layouts"]] == [4, 3]
    assert found["predicted_step_us"] == found["layouts"][0]["predicted_step_us"]
    assert {path.name for path in tmp_path.iterdir()} == {
        *(
            ".hydra",
            "config.yaml",
            "events.jsonl",
            "machine.json",
            "recoveries.png",
            "recoveries.svg",
            "report.html",
            "rows.jsonl",
            "table.md",
            "table.txt",
        )
    }
    assert found["recoveries"][0]["lost"] == [1]
    assert row.provenance.startswith("executed on 4 one-thread processes of a CPU (")
    assert "4 → 3" in (tmp_path / "table.md").read_text()
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "step"] == list(range(6))
    assert next(event["why"] for event in events if event["event"] == "lost").startswith("node ")
    problem = msgspec.convert(next(event["problem"] for event in events if event["event"] == "costs"), ReplanProblem)
    assert (found["predicted_step_us"], found["layouts"][0]["on_cores_us"]) == estimated(problem, found["cores"])


def estimated(problem: ReplanProblem, on: int) -> tuple[int, int]:
    """A step of the start, two alike pipelines of two stages, by the judge's recurrence; and on so many cores."""
    predicted = pipeline_us(problem, (3, 3), 4) + problem.sync_us + 3 * problem.layer_sync_us
    extra = sum(problem.first_extra_us) + sum(problem.last_extra_us)
    passes = 8 * (6 * (problem.forward_us + problem.backward_us) + extra)
    return predicted, max(predicted, -(-passes // on))


def test_other_bits_end_with_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The row judges: a loss that differs is told."""
    from dataclasses import replace

    from experiments.elastic.outcomes import Compared, is_as_promised, row_of, tables_of
    from experiments.elastic.settings import read_elastic_settings
    from runtime.elastic import Alone, Outcome

    outcome = Outcome((1.0, 2.0), ("a",), True, (2,), (), (10, 20), ())
    composed = read_elastic_settings(["experiment=elastic"])
    assert is_as_promised(row_of(composed, outcome, Compared(Alone((1.0, 2.0), ("a",)), 9.0)))
    for other in (Alone((1.0, 2.5), ("a",)), Alone((1.0, 2.0), ("b",))):
        row = row_of(composed, outcome, Compared(other, 9.0))
        assert not is_as_promised(row)
        assert "NO" in [value for _, value in tables_of(row)[1].body]
    unlike = row_of(composed, replace(outcome, replicas_equal=False), None)
    assert not is_as_promised(unlike)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nodes=3"], "bayplan: nodes is 3, which pipelines of 2 do not divide: choose a multiple of 2"),
        (["nodes=16", "pipeline=8"], "bayplan: pipeline is 8, but the job has 6 layers: take fewer stages"),
        (
            ["job=tests.runtime.elastic.jobs:smal"],
            "bayplan: the job 'tests.runtime.elastic.jobs:smal' cannot be load",
        ),
        (["job=tests.runtime.elastic.jobs"], "bayplan: the job is 'tests.runtime.elastic.jobs': write MODULE:FACTORY"),
        (["job=os:getcwd"], "bayplan: the job 'os:getcwd' cannot be made (TypeError: "),
        (["kills=1@12"], "bayplan: kills names step 12, but there are 12 steps, numbered from 0: train more of them"),
        (["kills=1@2+fresh@40"], "bayplan: kills names step 40, but there are 12 steps"),
        (["kills=now"], "bayplan: cannot read the kill 'now'"),
        (["nodes=4", "kills=5@3+fresh@4"], "bayplan: a failure of node 5 is asked for, but with 4 nodes and 1 joins"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, f"run_dir={tmp_path}/run", *words]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert said[0].startswith(sentence)


def test_a_port_that_is_taken_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main([*WORDS, f"port={port}", f"run_dir={tmp_path}/run"]) == 2
    assert f"port {port} of 127.0.0.1 cannot be opened" in capsys.readouterr().err
