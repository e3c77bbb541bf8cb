"""Whatever is wrong with a file, its readers say so in one line, exit with 2, and write nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.commands.console import call, refused, write_graph, write_problem

Raw = dict[str, Any]


def _edited(change: Callable[[Raw], object]) -> Callable[[str], bytes]:
    """The good file with one thing wrong."""

    def edit(good: str) -> bytes:
        raw = json.loads(good)
        change(raw)
        return json.dumps(raw).encode()

    return edit


WRONG: dict[str, tuple[Callable[[str], bytes], str]] = {
    "truncated": (lambda good: good[: len(good) // 2].encode(), "is not valid JSON"),
    "empty": (lambda good: b"", "is not valid JSON"),
    "binary": (lambda good: bytes(range(256)), "give a readable UTF-8 JSON file"),
    "nan": (lambda good: good.replace("100", "NaN", 1).encode(), "NaN is not a number"),
    "infinity": (lambda good: good.replace("100", "1e999", 1).encode(), "is too large"),
    "huge integer": (lambda good: good.replace("100", "9" * 5000, 1).encode(), ""),
    "deep": (lambda good: b"[" * 100_000, "is not valid JSON"),
    "an array": (lambda good: b"[1, 2]", "not a JSON object"),
    "another format": (_edited(lambda raw: raw.update(format="bayplan-poster/1")), "has format 'bayplan-poster/1'"),
    "no format": (_edited(lambda raw: raw.pop("format")), "has format None"),
    "negative bytes": (_edited(lambda raw: raw["memory_bytes"].__setitem__(1, -5)), "memory_bytes[1] is -5"),
    "a text for bytes": (_edited(lambda raw: raw["memory_bytes"].__setitem__(1, "many")), 'memory_bytes[1] is "many"'),
    "an unknown key": (_edited(lambda raw: raw.update(colour="red")), "colour"),
    "a missing key": (_edited(lambda raw: raw.pop("tensors")), "tensors"),
    "a repeated key": (lambda good: good.replace("{", '{"format": "x",', 1).encode(), "appears twice"),
    "too few sizes": (_edited(lambda raw: raw["memory_bytes"].pop()), "memory_bytes has 5 entries for 6 ops"),
    "a dangling index": (
        _edited(lambda raw: raw["tensors"][0].update({"first_backward_use": 6} if "kind" in raw else {"uses": [6]})),
        "tensors[0]",
    ),
}


@pytest.fixture(params=sorted(WRONG))
def fault(request: pytest.FixtureRequest) -> tuple[Callable[[str], bytes], str]:
    return WRONG[request.param]


def _only_file_is(path: Path) -> None:
    assert [path] == list(path.parent.iterdir())


def test_a_problem(tmp_path: Path, fault: tuple[Callable[[str], bytes], str]) -> None:
    spoil, sentence = fault
    problem = write_problem(tmp_path / "p.json")
    problem.write_bytes(spoil(problem.read_text()))
    for command in (
        ["solve", problem, "--solver", "greedy-swap", "--out", tmp_path / "plan.json"],
        ["check", problem, problem],
        ["simulate", problem, problem, "--trace", tmp_path / "t.json"],
    ):
        said = refused(call(*command))
        assert sentence in said
        assert str(problem) in said
    _only_file_is(problem)


def test_a_graph(tmp_path: Path, fault: tuple[Callable[[str], bytes], str]) -> None:
    spoil, sentence = fault
    graph = write_graph(tmp_path / "g.json")
    graph.write_bytes(spoil(graph.read_text()))
    outcome = call("make", "swap", "--graph", graph, "--hardware", "sim-small", "--out", tmp_path / "p.json")
    said = refused(outcome)
    assert sentence in said
    assert str(graph) in said
    _only_file_is(graph)


def test_a_folder_a_missing_file_and_a_kind_that_does_not_exist(tmp_path: Path) -> None:
    assert "cannot read" in refused(call("solve", tmp_path, "--solver", "greedy-swap"))
    assert "cannot read" in refused(call("solve", tmp_path / "none.json", "--solver", "greedy-swap"))
    assert "cannot read" in refused(call("solve", "line\nend", "--solver", "greedy-swap"))
    problem = write_problem(tmp_path / "p.json")
    problem.write_text(problem.read_text().replace('"swap"', '"swop"', 1))
    assert "has kind 'swop'" in refused(call("solve", problem, "--solver", "greedy-swap"))


def test_a_plan(tmp_path: Path) -> None:
    problem, plan = write_problem(tmp_path / "p.json"), tmp_path / "plan.json"
    call("solve", problem, "--solver", "greedy-swap", "--out", plan)
    good = json.loads(plan.read_text())
    for change, sentence in (
        ({"decision": {"swaps": [{"tensor": "A"}]}}, "swap_in_at"),
        ({"decision": {"swaps": [{"tensor": "A", "swap_in_at": -4}]}}, "swap_in_at"),
        ({"decision": {"swaps": [], "more": 1}}, "more"),
        ({"status": "great"}, "status"),
        ({"solve_time_s": -1}, "solve_time_s"),
        ({"kind": "swop"}, "kind 'swop'"),
    ):
        plan.write_text(json.dumps({**good, **change}))
        for command in ("check", "simulate"):
            said = refused(call(command, problem, plan))
            assert sentence in said
            assert str(plan) in said
    plan.write_text(problem.read_text())
    assert "'bayplan-plan/1' is expected here" in refused(call("check", problem, plan))
    plan.write_text(json.dumps(good))
    assert "'bayplan-problem/1' is expected here" in refused(call("check", plan, problem))
