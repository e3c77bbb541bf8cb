"""Commands in a pipe: `-` for stdin and stdout, and answers as one JSON object."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from experiments.reproduction.entry import entry_names
from solvers.kinds import KINDS
from solvers.planner import solver_names
from tests.experiments.commands.console import Outcome, call, refused, tiny_problem, write_graph, write_problem
from tests.experiments.reproduction.fakes import squares_entry, write_entry


def piped(monkeypatch: pytest.MonkeyPatch, text: str, *arguments: object) -> Outcome:
    """One command with this text on its stdin."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return call(*arguments)


def told(outcome: Outcome, code: int = 0) -> dict[str, Any]:
    """The one JSON object on stdout, with nothing on stderr."""
    assert (outcome.code, outcome.err) == (code, "")
    found: dict[str, Any] = json.loads(outcome.out)
    return found


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    return write_problem(tmp_path / "p.json")


@pytest.fixture
def plan(problem: Path) -> Path:
    path = problem.with_name("plan.json")
    assert call("solve", problem, "--solver", "milp-swap", "--out", path).code == 0
    return path


def test_a_plan_travels_through_pipes(problem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = problem.read_text()
    solved = piped(monkeypatch, text, "solve", "-", "--solver", "milp-swap", "--out", "-")
    assert (solved.code, solved.err) == (0, "")
    assert json.loads(solved.out)["format"] == "bayplan-plan/1"
    checked = piped(monkeypatch, solved.out, "check", problem, "-")
    assert checked.code == 0 and checked.figure("verdict") == "no violations"
    simulated = piped(monkeypatch, solved.out, "simulate", problem, "-")
    assert simulated.figure("makespan") == "80 µs"
    other = problem.with_name("plan.json")
    other.write_text(solved.out)
    assert "from stdin, kind swap" in piped(monkeypatch, text, "simulate", "-", other).out


def test_a_problem_is_made_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = write_graph(tmp_path / "g.json")
    words = ("make", "swap", "--hardware", "sim-small", "--budget", "90%", "--out", "-")
    from_file = call(*words, "--graph", graph)
    assert from_file.code == 0
    made = json.loads(from_file.out)
    assert (made["format"], made["kind"]) == ("bayplan-problem/1", "swap")
    assert piped(monkeypatch, graph.read_text(), *words, "--graph", "-") == from_file


def test_a_trace_goes_to_stdout_alone(problem: Path, plan: Path) -> None:
    assert json.loads(call("simulate", problem, plan, "--trace", "-").out)["traceEvents"]


def test_one_stream_serves_one_thing(problem: Path, plan: Path) -> None:
    both = "two inputs are -, but stdin holds one file only: give the other one by its path"
    assert refused(call("check", "-", "-")) == refused(call("simulate", "-", "-")) == both
    said = refused(call("solve", problem, "--solver", "milp-swap", "--json", "--out", "-"))
    assert said == "--json and --out - both write to stdout: leave one of them out"
    assert "--trace -" in refused(call("simulate", problem, plan, "--json", "--trace", "-"))


def test_bad_stdin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(piped(monkeypatch, "{", "solve", "-", "--solver", "milp-swap"))
    assert said.startswith("stdin is not valid JSON")
    assert "stdin has format" in refused(piped(monkeypatch, "{}", "solve", "-", "--solver", "milp-swap"))


def test_solve_answers_in_json(problem: Path, tmp_path: Path) -> None:
    answer = told(call("solve", problem, "--solver", "milp-swap", "--json"))
    assert (answer["status"], answer["objective_us"], answer["bound_us"], answer["gap"]) == ("optimal", 80, 80, 0)
    assert (answer["problem"], answer["kind"], answer["solver"], answer["out"]) == ("tiny", "swap", "milp-swap", None)
    small = write_problem(tmp_path / "small.json", budget_bytes=100)
    answer = told(call("solve", small, "--solver", "greedy-swap", "--json"), code=1)
    assert (answer["status"], answer["least_budget_bytes"], answer["objective_us"]) == ("infeasible", 140, None)


def test_check_answers_in_json(problem: Path, plan: Path) -> None:
    verdict = told(call("check", problem, plan, "--json"))
    assert (verdict["clean"], verdict["violations"], verdict["objective_us"]) == (True, [], 80)
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "objective_us": 79, "bound_us": 79}))
    verdict = told(call("check", problem, plan, "--json"), code=1)
    assert not verdict["clean"] and any("objective_us is 79" in one for one in verdict["violations"])


def test_simulate_answers_in_json(problem: Path, plan: Path) -> None:
    report = told(call("simulate", problem, plan, "--json"))
    assert (report["makespan_us"], report["budget_bytes"]) == (80, tiny_problem().budget_bytes)
    assert report["violations"] == [] and "spans" not in report
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "objective_us": 79, "bound_us": 79}))
    assert told(call("simulate", problem, plan, "--json"), code=1)["violations"]


def test_solvers_are_listed_in_json() -> None:
    listed = told(call("solvers", "--json"))
    assert {one["name"] for one in listed["solvers"]} >= set(solver_names())
    assert {one["kind"] for one in listed["solvers"]} == set(KINDS)
    assert {"name", "title", "version", "licence"} <= set(listed["engines"][0])


def test_tables_answer_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "entries"
    write_entry(folder, "school-figure-1", squares_entry())
    monkeypatch.setattr("experiments.reproduction.entry.SHIPPED", folder)
    monkeypatch.chdir(tmp_path)
    assert [one["name"] for one in told(call("table", "--json"))["entries"]] == entry_names(folder)
    (entry,) = told(call("table", "school-figure-1", "--json"))["entries"]
    assert entry["failure"] is None
    assert {row["format"] for row in entry["rows"]} == {"bayplan-row/1"}
    assert "--json prints the rows" in refused(call("table", "school-figure-1", "--json", "--out", tmp_path / "o"))
