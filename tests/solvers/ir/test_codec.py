"""Files come back as they were written, and every malformed one is refused in one sentence that names the place."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ir import (
    BayplanError,
    Hardware,
    InvalidInput,
    OpGraph,
    PlanFile,
    Problem,
    Report,
    Row,
    Schedule,
    Solution,
    Status,
    SwapPlan,
    codec,
)
from tests.documents import graphs, hardwares, reports, rows, schedules
from tests.strategies import plans, problems, swap_plans, swap_problems

documents: list[tuple[type[Any], st.SearchStrategy[Any]]] = [
    (OpGraph, graphs()),
    (Hardware, hardwares()),
    (Schedule, schedules()),
    (Report, reports),
    (Row, rows),
]


def as_json(raw: Any) -> Any:
    """What a file holds after a trip to the disk."""
    return codec.parse_json(json.dumps(raw, ensure_ascii=False), "the test")


def answer(problem: Problem, plan: Any) -> PlanFile:
    """A plan file around a decision, as a solver would write it."""
    solution = Solution(status=Status.FEASIBLE, plan=plan, solver="test", objective=7, bound=5.5, base=3)
    return codec.plan_file(solution, problem.KIND, codec.problem_sha256(problem))


@given(problems)
def test_problems_come_back_as_they_were_written(problem: Problem) -> None:
    raw = as_json(codec.problem_to_raw(problem))
    assert codec.problem_from_raw(raw) == problem
    assert codec.canonical_sha256(raw) == codec.problem_sha256(problem)


@given(st.data())
def test_plans_come_back_as_they_were_written(data: st.DataObject) -> None:
    problem = data.draw(problems)
    plan = data.draw(plans(problem))
    read = codec.plan_from_raw(as_json(codec.plan_to_raw(answer(problem, plan))))
    assert read == answer(problem, plan)
    assert read.plan() == plan


@given(st.data())
def test_documents_come_back_as_they_were_written(data: st.DataObject) -> None:
    kind, strategy = data.draw(st.sampled_from(documents))
    document = data.draw(strategy)
    assert codec.document_from_raw(as_json(codec.document_to_raw(document)), kind, "the test") == document


def test_the_hash_is_of_the_canonical_json_of_design_4() -> None:
    """Keys sorted, no spaces, é as itself: printf '{"a":[1,2],"é":null}' | sha256sum."""
    raw = codec.parse_json('{ "é": null,\n "a": [1, 2] }', "the test")
    assert codec.canonical_sha256(raw) == "7a0c7dcb296b6c53f68790beba4795b37f135c13f30f79ea379fd6a0e38c6639"


def places(raw: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON document, the whole document included."""
    yield path
    items = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def mutated(raw: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the document with another value at one place."""
    copy: Any = json.loads(json.dumps(raw))
    if not path:
        return value
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy


def text_of(data: st.DataObject) -> tuple[str, Any]:
    """A random valid file of any format: what reads it, and its raw JSON."""
    what = data.draw(st.sampled_from(["problem", "plan", "document"]))
    if what == "document":
        kind, strategy = data.draw(st.sampled_from(documents))
        return kind.__name__, as_json(codec.document_to_raw(data.draw(strategy)))
    problem = data.draw(problems)
    if what == "problem":
        return what, as_json(codec.problem_to_raw(problem))
    return what, as_json(codec.plan_to_raw(answer(problem, data.draw(plans(problem)))))


def read(what: str, text: str) -> Any:
    """Read a file's text as the command line would."""
    raw = codec.parse_json(text, "x.json")
    if what == "problem":
        return codec.problem_from_raw(raw, "x.json")
    if what == "plan":
        return codec.plan_from_raw(raw, "x.json")
    kind = {kind.__name__: kind for kind, _ in documents}[what]
    return codec.document_from_raw(raw, kind, "x.json")


def refusal(what: str, text: str) -> str:
    """The sentence with which a bad file is refused."""
    with pytest.raises(InvalidInput) as caught:
        read(what, text)
    return one_sentence(caught.value)


def one_sentence(error: BayplanError) -> str:
    """The error's text: one line that begins with the file."""
    text = str(error)
    assert text.startswith("x.json"), text
    assert "\n" not in text, text
    assert len(text) < 600, text
    return text


strange: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1.5, 2**53 + 1, 10**400, -(10**30), "", "x", "0.in\n", [], [[]], {}, {"a": 1}, [0, 0]]
)


@settings(max_examples=400)
@given(st.data())
def test_any_value_anywhere_is_read_or_refused_in_one_sentence(data: st.DataObject) -> None:
    """Never another exception; and what was read can be written."""
    what, raw = text_of(data)
    path = data.draw(st.sampled_from(list(places(raw))))
    try:
        found = read(what, json.dumps(mutated(raw, path, data.draw(strange))))
    except InvalidInput as error:
        one_sentence(error)
    else:
        json.dumps(msgspec.to_builtins(found), allow_nan=False)


FREE = {"certificate", "asked", "figures", "flops_per_s", "efficiency", "stall_us"}
"""Objects with names of their own choice."""


@settings(max_examples=200)
@given(st.data())
def test_unknown_keys_are_refused_everywhere(data: st.DataObject) -> None:
    what, raw = text_of(data)
    objects = [path for path in places(raw) if not FREE & set(path) and isinstance(at(raw, path), dict)]
    path = data.draw(st.sampled_from(objects))
    text = refusal(what, json.dumps(mutated(raw, path, {**at(raw, path), "budget_byte": 1})))
    assert "budget_byte" in text


SIGNED = {"seed", "objective_us", "base_us", "bound_us", "id", "data", "inputs", "outputs", "tensor"}
"""Where −1 has the right form: claims to be judged, and names."""


@settings(max_examples=100)
@given(st.data())
def test_negative_and_fractional_integers_are_refused_everywhere(data: st.DataObject) -> None:
    what, raw = text_of(data)
    integers = [path for path in places(raw) if type(at(raw, path)) is int and not (SIGNED | FREE) & set(path)]
    if integers:
        path = data.draw(st.sampled_from(integers))
        assert "is -1, but" in refusal(what, json.dumps(mutated(raw, path, -1)))
        assert "is 1.5, but" in refusal(what, json.dumps(mutated(raw, path, 1.5)))


def at(raw: Any, path: tuple[Any, ...]) -> Any:
    """The value at a path."""
    for key in path:
        raw = raw[key]
    return raw


@settings(max_examples=200)
@given(st.data())
def test_truncated_and_doubled_texts_are_refused(data: st.DataObject) -> None:
    what, raw = text_of(data)
    text = json.dumps(raw, ensure_ascii=False)
    cut = data.draw(st.integers(0, len(text) - 1))
    assert "is not valid JSON" in refusal(what, text[:cut])
    assert "'format' appears twice" in refusal(what, '{"format": 1, ' + text[1:])


SWAP = {
    "format": "bayplan-problem/1",
    "kind": "swap",
    "name": "two ops",
    "budget_bytes": 4,
    "ops": [{"name": "f", "time_us": 1, "phase": "forward"}, {"name": "b", "time_us": 1, "phase": "backward"}],
    "memory_bytes": [4, 4],
    "tensors": [{"id": "t", "bytes": 2, "last_forward_use": 0, "first_backward_use": 1}],
    "link": {"out_bytes_per_s": 1, "in_bytes_per_s": 1, "latency_us": 0},
}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("budget_bytes",), -3, "budget_bytes is -3, but `int` >= 0"),
        (("ops", 1, "time_us"), 0, "ops[1].time_us is 0, but `int` >= 1"),
        (("ops", 0, "phase"), "sideways", 'ops[0].phase is "sideways": choose of backward, forward, optimizer'),
        (("ops", 0), {"name": "f", "phase": "forward"}, "ops[0] lacks the key `time_us`"),
        (("ops",), [], "ops is empty"),
        (("memory_bytes",), [4], "memory_bytes has 1 entries for 2 ops"),
        (("tensors", 0, "first_backward_use"), 2, "tensors[0].first_backward_use is 2, but there are only 2 ops"),
        (("tensors", 0, "last_forward_use"), 1, "tensors[0].last_forward_use is 1, not before"),
        (("tensors", 0, "id"), 1.5, "tensors[0].id is 1.5"),
        (("tensors",), [SWAP["tensors"][0]] * 2, "tensor 't' appears twice"),  # type: ignore[index]
        (("link", "in_bytes_per_s"), 0, "link.in_bytes_per_s is 0, but `int` >= 1"),
        (("link",), None, "link is null"),
        (("budget_bytes",), "much " * 100, 'budget_bytes is "' + "much " * 11 + "much…, but"),
        (("kind",), "stow", "has kind 'stow': choose of joint, layout"),
        (("format",), "bayplan-problem/2", "has format 'bayplan-problem/2'"),
        ((), [], "holds list"),
    ],
)
def test_the_sentence_names_place_value_and_limit(path: tuple[Any, ...], value: Any, words: str) -> None:
    assert words in refusal("problem", json.dumps(mutated(SWAP, path, value)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not valid JSON"),
        ("nonsense", "is not valid JSON"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"a": 1e999}', "1e999 is too large"),
        ('{"a": ' + "9" * 5000 + "}", "is not valid JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' appears twice"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_text_that_is_not_json_is_refused(text: str, words: str) -> None:
    assert words in refusal("problem", text)


def test_a_decision_of_the_wrong_form_is_refused_with_its_place() -> None:
    problem = codec.problem_from_raw(SWAP)
    raw = codec.plan_to_raw(answer(problem, SwapPlan(swaps=())))
    raw["decision"] = {"swaps": [{"tensor": "t", "swap_in_at": -1}]}
    assert "x.json, decision: swaps[0].swap_in_at is -1" in refusal("plan", json.dumps(raw))


def test_an_infeasible_answer_has_a_file_without_decision_and_base() -> None:
    solution: Solution[SwapPlan] = Solution(
        status=Status.INFEASIBLE, plan=None, solver="test", base=2, least_budget_bytes=9, reason="exactly 9 bytes"
    )
    file = codec.plan_file(solution, "swap", None)
    assert (file.decision, file.base_us, file.objective_us, file.plan()) == (None, None, None, None)
    assert codec.plan_from_raw(as_json(codec.plan_to_raw(file))) == file


def test_a_least_budget_may_be_more_than_any_single_size() -> None:
    """Of two outputs of the largest size that both are needed at once."""
    least = 2**54 + 1
    solution: Solution[SwapPlan] = Solution(
        status=Status.INFEASIBLE, plan=None, solver="x", least_budget_bytes=least, reason=f"exactly {least} bytes"
    )
    raw = as_json(codec.plan_to_raw(codec.plan_file(solution, "swap", None)))
    assert codec.plan_from_raw(raw).least_budget_bytes == least


@settings(max_examples=10)
@given(st.data())
def test_problem_and_plan_files_on_disk(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("files")
    problem = data.draw(swap_problems())
    file = answer(problem, data.draw(swap_plans(problem)))
    codec.write_json(folder / "p.json", codec.problem_to_raw(problem))
    codec.write_json(folder / "plan.json", codec.plan_to_raw(file))
    assert codec.read_problem(folder / "p.json") == (problem, file.problem_sha256)
    assert codec.read_plan(folder / "plan.json") == file
    assert sorted(path.name for path in folder.iterdir()) == ["p.json", "plan.json"]


def test_files_that_cannot_be_read_or_written_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        codec.read_problem(tmp_path / "absent.json")
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(InvalidInput, match="UTF-8"):
        codec.read_problem(tmp_path / "latin.json")
    with pytest.raises(InvalidInput, match="cannot read"):
        codec.read_text(Path("a\0b"))
    with pytest.raises(InvalidInput, match="cannot write"):
        codec.write_text(tmp_path / "no such folder" / "x.json", "{}")
    with pytest.raises(InvalidInput, match="cannot write"):
        codec.write_text(tmp_path / "x.json", "\ud800")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidInput, match="cannot write"):
        codec.write_text(tmp_path / "folder", "{}")
    assert sorted(os.listdir(tmp_path)) == ["folder", "latin.json"]


def test_a_document_of_another_format_is_refused() -> None:
    graph = OpGraph.FORMAT
    assert f"has format '{graph}', but 'bayplan-row/1'" in refusal("Row", json.dumps({"format": graph}))


def test_large_files_have_no_spaces_and_mean_the_same(tmp_path: Path) -> None:
    small, large = {"a": [1, 2]}, {"a": list(range(300_000))}
    codec.write_json(tmp_path / "small.json", small)
    codec.write_json(tmp_path / "large.json", large)
    assert "\n" in (tmp_path / "small.json").read_text().strip()
    assert " " not in (tmp_path / "large.json").read_text()
    assert json.loads((tmp_path / "large.json").read_text()) == large


def test_a_file_beyond_the_limit_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "p.json"
    place.write_text("{}")
    monkeypatch.setattr("solvers.ir.codec.MOST_BYTES", 1)
    with pytest.raises(InvalidInput, match="has 2 bytes, the limit is 1"):
        codec.read_text(place)
