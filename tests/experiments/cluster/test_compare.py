"""`bayplan compare experiment=ft_32`: rows, tables, pictures, a page; what is interrupted goes on."""

import json
from pathlib import Path

import pytest

from experiments.compare import main
from experiments.rows import read_rows
from solvers.ir import InvalidInput
from solvers.ir.codec import read_problem
from solvers.ir.replan import ReplanProblem
from solvers.replan.cluster import campaign

WORDS = ["experiment=ft_32", "hours=3", "seeds=3", "workers=1", "~policies.symmetric", "~policies.bayplan"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ft") / "run"
    assert main([*WORDS, f"run_dir={path}"]) == 0
    return path


def test_every_policy_has_a_row_that_says_what_was_asked(folder: Path) -> None:
    rows = read_rows(folder / "rows.jsonl")
    assert [row.asked["policy"] for row in rows] == [
        "chameleon", "always-replan", "always-reroute", "oobleck", "recycle", "checkpoint",
    ]  # fmt: skip
    for row in rows:
        assert row.outcome == "ok" and row.provenance.endswith("nothing was executed")
        assert row.asked["seeds"] == 3 and row.asked["grid"] == "8x4"
        assert sum(row.figures["shares"].values()) == pytest.approx(1.0)
        assert row.figures["samples_per_s"]["p5"] <= row.figures["samples_per_s"]["p95"]
    assert rows[0].figures["first_over"]["mean"] == 1.0
    assert rows[2].figures["first_over"]["mean"] > 1.0  # always rerouting is slower than choosing


def test_tables_picture_and_page(folder: Path) -> None:
    assert "Lives: llama-2-7b on 8 pipelines of 4, 3 times 3 h, 10 % an hour" in (folder / "table.txt").read_text()
    assert (folder / "lives.svg").read_text().startswith("<?xml")
    page = (folder / "report.html").read_text()
    assert "<svg" in page and "restart_s: 8.2" in page and "<td>oobleck</td>" in page


def test_a_second_run_lives_nothing_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (folder / "runs.jsonl").read_text()

    def refused(*_: object) -> None:
        raise AssertionError("a life that is kept was lived again")

    monkeypatch.setattr("solvers.replan.cluster.parallel.run", refused)
    assert main([*WORDS, "plots=false", f"run_dir={folder}"]) == 0
    assert (folder / "runs.jsonl").read_text() == before


def test_other_settings_are_refused_in_the_same_folder(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="holds a run with other settings: choose another folder"):
        main([*WORDS, "restart_s=9", f"run_dir={folder}"])


def test_an_interrupted_run_keeps_its_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lived = []

    def interrupted(*arguments: object, **named: object) -> object:
        def stop(progress: object) -> None:
            lived.append(progress)
            if len(lived) == 2:
                raise KeyboardInterrupt

        return campaign(*arguments, **{**named, "progress": stop})  # type: ignore[arg-type]

    monkeypatch.setattr("experiments.cluster.lives.campaign", interrupted)
    words = [*WORDS, "plots=false", f"run_dir={tmp_path / 'run'}"]
    assert main(words) == 130
    assert "interrupted: what was done so far is in" in capsys.readouterr().err
    monkeypatch.setattr("experiments.cluster.lives.campaign", campaign)
    kept = len((tmp_path / "run" / "runs.jsonl").read_text().splitlines())
    assert kept >= 1
    assert main(words) == 0
    assert {row.outcome for row in read_rows(tmp_path / "run" / "rows.jsonl")} == {"ok"}


def test_a_trace_is_one_life(tmp_path: Path) -> None:
    trace = tmp_path / "failures.csv"
    trace.write_text("600000,remove,3\n1200000,remove,17\n1800000,add,3\n")
    path = tmp_path / "run"
    assert main([*WORDS, "seeds=0", "plots=false", f"trace={trace}", f"run_dir={path}"]) == 0
    for row in read_rows(path / "rows.jsonl"):
        assert (row.figures["failures"], row.figures["repairs"]) == (2, 1)
        assert (row.asked["trace"], row.asked["expected_rate_per_h"]) == (str(trace), 0.1)
        assert not {"seeds", "rate_per_h", "repair_h"} & set(row.asked), "nothing of this life was drawn"
    trace.write_text("600000,remove,3\nten,remove,4\n")
    with pytest.raises(InvalidInput, match="line 2"):
        main([*WORDS, "seeds=0", "plots=false", f"trace={trace}", f"run_dir={tmp_path / 'other'}"])
    trace.write_text("32400000,remove,3\n")
    with pytest.raises(InvalidInput, match="begins 9 h into the run, which ends after 2 h: raise hours"):
        main([*WORDS, "hours=2", "seeds=0", f"trace={trace}", f"run_dir={tmp_path / 'other'}"])
    assert not (tmp_path / "other").exists()


def test_a_public_trace_starts_with_no_node(tmp_path: Path) -> None:
    """Spot instances come, go, and come under other names; one more than the grid has is a spare node."""
    trace, path = tmp_path / "spot.csv", tmp_path / "run"
    lines = [f"{number * 1000},add,i-{number}" for number in range(33)]
    lines += [f"{3_600_000 + 60_000 * number},remove,i-{number}" for number in range(5)]
    lines += ["4000000,add,i-33", "4000001,remove,i-33"]
    trace.write_text("\n".join(["milliseconds,event,node", *lines]))
    words = [*WORDS[:1], "hours=2", "seeds=0", "plots=false", f"trace={trace}", f"run_dir={path}"]
    with pytest.raises(InvalidInput, match=r"node 'i-0' is none of 0…31.*or say that it starts empty"):
        main(words)
    with pytest.raises(
        InvalidInput, match="33 nodes are present at once, but the cluster has 32: give 1 more as spares"
    ):
        main([*words, "start=empty"])
    assert not path.exists()
    assert main([*words, "start=empty", "spares=1", "policies.checkpoint.restore_s=1000"]) == 0
    rows = {row.asked["policy"]: row for row in read_rows(path / "rows.jsonl")}
    for row in rows.values():
        assert (row.figures["failures"], row.figures["repairs"]) == (6, 34)
        assert (row.asked["start"], row.asked["spares"]) == ("empty", 1)
        assert row.figures["samples_per_s"]["mean"] > 1, "training began once enough nodes had come"
    assert {row.reason for row in rows.values()} == {None}, "1,200 s between failures are longer than any restore"
    trace.write_text("0,add,a\n1000,remove,a\n")
    words[-1] = f"run_dir={tmp_path / 'never'}"
    with pytest.raises(InvalidInput, match=r"chameleon, .* never ended a step within the 2 h of the trace .*spot\.csv"):
        main([*words, "start=empty"])


def test_a_restore_longer_than_the_time_between_failures_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    words = [*WORDS, "seeds=1", "hours=1", "rate_per_h=1", "plots=false", f"run_dir={path}"]
    assert main(words) == 0
    said = (
        "going back to a checkpoint, at every failure, takes 300 s, longer than the 112 s between failures on average"
    )
    rows = {row.asked["policy"]: row for row in read_rows(path / "rows.jsonl")}
    assert said in (rows["checkpoint"].reason or "") and rows["checkpoint"].outcome == "ok"
    assert "where a state has lost all its copies" in (rows["oobleck"].reason or "")
    assert f"Checkpoint: {said}" in (path / "table.md").read_text()
    out = capsys.readouterr()
    assert f"checkpoint: {said}" in out.out + out.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trace=."], "the trace . is a folder: give the path of a CSV file"),
        (["start=empty"], "start is empty, but no node would ever come: give trace=FILE, or start=full"),
        (["seeds=0", "lost=2", "spares=2"], "spares is 2, but nothing trains through failures"),
        (["spares=-1"], "spares is -1, outside 0…100000"),
    ],
)
def test_what_contradicts_itself_is_refused(words: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        main([*WORDS, *words, f"run_dir={tmp_path / 'run'}"])
    assert sentence in str(caught.value)


def test_what_cannot_be_lived_leaves_no_folder(tmp_path: Path) -> None:
    """Pipelines of one stage fit no device: nothing is written, and the folder is free for settings that do."""
    path = tmp_path / "run"
    with pytest.raises(InvalidInput, match=r"^no pipeline of depth 1 fits a node's \d+ bytes: raise depth"):
        main([*WORDS, "grid=32x1", "plots=false", f"run_dir={path}"])
    assert not path.exists()
    assert main([*WORDS, "seeds=1", "hours=1", "plots=false", f"run_dir={path}"]) == 0


def test_plans_after_failures_are_judged_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    assert main(["experiment=ft_scale", "grid=4x2x8", "lost=2", "draws=2", f"run_dir={path}"]) == 0
    paper, exact = read_rows(path / "rows.jsonl")
    assert (paper.asked["policy"], exact.asked["policy"]) == ("algorithm1", "exact-replan")
    assert exact.figures["statuses"] == ["optimal"] and exact.figures["gap"] == 0.0
    assert paper.figures["gap"] >= 0.0
    problems = sorted((path / "problems").glob("*.json"))
    problem, _ = read_problem(problems[0])
    assert len(problems) == 2
    assert isinstance(problem, ReplanProblem) and problem.current is not None and len(problem.current.failed) == 2
    assert json.loads(problems[0].read_text())["kind"] == "replan"
    assert "Plans: llama-2-7b on 4 pipelines of 2, 2 lost" in capsys.readouterr().out


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment=ft_32", "--help"]) == 0
    assert "policies.oobleck.restart_s=60" in capsys.readouterr().out
