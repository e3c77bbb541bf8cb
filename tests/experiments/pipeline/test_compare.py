"""`bayplan compare experiment=lynx`: what it prints, what it leaves behind, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli import main as bayplan
from experiments.compare import main
from experiments.rows import read_rows
from solvers.check import check_plan
from solvers.ir.codec import read_plan, read_problem

WORDS = ["experiment=lynx", "shape=gpt-13b", "cluster=lynx-nvlink", "microbatch=32", "microbatches=8"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lynx") / "run"
    assert main([*WORDS, f"run_dir={folder}"]) == 0
    return folder


def test_every_system_has_a_row(run: Path) -> None:
    rows = {str(row.asked["policy"]): row for row in read_rows(run / "rows.jsonl")}
    assert list(rows)[:4] == ["full", "selective", "adapipe", "heu"]
    assert rows["selective"].outcome == "infeasible" and "selective needs" in (rows["selective"].reason or "")
    for name, row in rows.items():
        assert row.asked["shape"] == "gpt-13b" and row.asked["tensor"] == 4 and row.asked["microbatches"] == 8
        assert row.provenance == "simulated, times by roofline and links of hardware lynx-nvlink"
        if name != "selective":
            figures = row.figures
            assert figures["base_us"] < figures["bound_us"] <= figures["makespan_us"]
            assert figures["gap"] == pytest.approx(1 - figures["bound_us"] / figures["makespan_us"])
            assert sum(figures["layers"]) == 40 == sum(stage["layers"] for stage in figures["stages"])
            assert max(figures["peak_bytes"]) <= figures["budget_bytes"] == 40 * 2**30


def test_mixing_policies_beats_one_policy_for_all_layers(run: Path) -> None:
    rows = {str(row.asked["policy"]): row.figures for row in read_rows(run / "rows.jsonl")}
    assert rows["bayplan"]["makespan_us"] < rows["lynx-fastest"]["makespan_us"] <= rows["lynx"]["makespan_us"]
    assert rows["bayplan"]["gap"] < 0.05


def test_plans_are_judged_from_their_files(run: Path) -> None:
    rows = {str(row.asked["policy"]): row.figures for row in read_rows(run / "rows.jsonl")}
    for system in ("full", "adapipe", "lynx", "bayplan"):
        for stage in range(4):
            problem, sha256 = read_problem(run / f"problems/{system}/stage-{stage}.json")
            plan = read_plan(run / f"plans/{system}/stage-{stage}.json")
            verdict = check_plan(problem, plan, sha256)
            assert verdict.clean
            assert verdict.objective_us == rows[system]["stages"][stage]["critical_us"]


def test_pictures_traces_and_tables_are_there(run: Path) -> None:
    trace = json.loads((run / "traces/lynx.json").read_text())
    assert any(event.get("name", "").startswith("recompute") for event in trace["traceEvents"])
    for name in ("throughput.svg", "throughput.png", "pipelines.svg", "pipelines.png", "config.yaml", "table.md"):
        assert (run / name).stat().st_size > 100
    words = (run / "plans/lynx/stages.txt").read_text()
    assert words.startswith("stage 0, ") and "; again in all-reduce gradient 2: " in words


def test_what_is_printed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "plots=false", "detail=lynx", f"run_dir={tmp_path}"]) == 0
    text = capsys.readouterr().out
    assert "Systems: gpt-13b on lynx-nvlink, tensor 4, pipeline 4, 8 microbatches of 32 × 1024" in text
    assert "Stages of lynx" in text
    assert "selective: stage 0 with 10 layers: selective needs" in text
    assert not (tmp_path / "pipelines.svg").exists()


def test_where_nothing_fits_the_answer_is_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "shape=gpt-175b", "plots=false", f"run_dir={tmp_path}"]) == 1
    assert "lynx: no partition fits, and of an even one stage 0 with 24 layers" in capsys.readouterr().out
    assert {row.outcome for row in read_rows(tmp_path / "rows.jsonl")} == {"infeasible"}


def test_bad_input_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert bayplan(["compare", "experiment=lynx", "shape=gpt-7", f"run_dir={folder}"]) == 2
    assert capsys.readouterr().err == "bayplan: there is no shape 'gpt-7': did you mean 'gpt-7b'?\n"
    assert not folder.exists()


def test_help_names_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert bayplan(["compare", "experiment=lynx", "--help"]) == 0
    assert "shape=NAME cluster=NAME" in capsys.readouterr().out


def test_the_whole_command_takes_little_time(tmp_path: Path) -> None:
    words = [*WORDS, "plots=false", f"run_dir={tmp_path}"]
    code = f"from experiments.cli import main; import sys; sys.exit(main({['compare', *words]!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = [line for line in done.stdout.splitlines() if line.startswith("planned in ")]
    assert len(told) == 1
    assert int(told[0].split()[2]) < 5000  # a busy machine; 300 to 500 ms on a quiet one


def test_memory_above_the_peak_is_questioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment=lynx", "shape=gpt-1.3b", "plots=false", "systems={full: full}"]
    for memory, told in ((40_000, True), (10, False)):
        assert main([*words, f"memory_gib={memory}", f"run_dir={tmp_path / str(memory)}"]) == 0
        said = capsys.readouterr().err
        assert ("warning: memory_gib=40000: the budget of" in said and "so nothing has to leave" in said) is told
