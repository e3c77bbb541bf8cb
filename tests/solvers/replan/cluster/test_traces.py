"""Traces: read, refused with the number of the line, and the same failures when written and read again."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ir import InvalidInput
from solvers.replan.cluster import Event, Failures, Repair, parse_trace, random_failures, read_trace
from tests.solvers.replan.cluster.settings import SECOND, by_hand, model


def test_a_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("# milliseconds,what,node\n\n1500,remove,2\n1500, remove, 0\n2000,add,2\n", encoding="utf-8")
    failed = (Event(1_500_000, 2, "failed"), Event(1_500_000, 0, "failed"))
    assert read_trace(path, 4) == Failures((*failed, Event(2_000_000, 2, "repaired")))


def test_more_nodes_than_the_cluster_has_are_counted() -> None:
    lines = ["0,add,a", "0,add,b", "0,add,c", "1,remove,b", "2,add,d", "3,add,e", "4,remove,a", "4,remove,c"]
    with pytest.raises(InvalidInput, match=r"^trace: 4 nodes are present at once, but the cluster has 2: give 2 more"):
        parse_trace(lines, 2, start="empty")
    assert len(parse_trace(lines, 4, start="empty").events) == 8


def test_spot_instances_come_back_under_other_names() -> None:
    """A place serves one instance after another, as long as no more are there at once than the cluster has nodes."""
    lines = ["0,add,a", "1,add,b", "2,remove,a", "3,remove,b", "4,add,c", "5,add,a", "6,remove,c", "7,add,d"]
    failures = parse_trace(lines, 2, start="empty")
    assert [(event.node, event.kind) for event in failures.events][4:] == [
        (0, "repaired"), (1, "repaired"), (0, "failed"), (0, "repaired"),
    ]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=40))
def test_places_follow_presence(steps: list[int]) -> None:
    """Whatever comes and goes: as many places are taken at each moment as names are present, each by one."""
    present: set[str] = set()
    lines, counts = list[str](), list[int]()
    for name in steps:
        word = f"i-{name}"
        lines.append(f"{len(lines)},{'remove' if word in present else 'add'},{word}")
        present ^= {word}
        counts.append(len(present))
    failures, taken = parse_trace(lines, 6, start="empty"), set[int]()
    for event, count in zip(failures.events, counts, strict=True):
        taken ^= {event.node}
        assert (event.node in taken) == (event.kind == "repaired")
        assert len(taken) == count


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("time,event,node", "1500,add,a"),
        ("Milliseconds, Event, Instance", "1500,add,a"),
        ("node,zone,seconds,event", "a,us-1,1.5,add"),
        ("s,type,name", "1.50,add,a"),
    ],
)
def test_a_first_line_may_name_the_columns(head: str, line: str) -> None:
    assert parse_trace([head, line], 1, start="empty").events == (Event(1_500_000, 0, "repaired"),)


def test_seconds_are_numbers() -> None:
    for text in ("-1", "nan", "inf", "1e400", "1e999999", "1_0", "١٢", "one", "9" * 40):
        with pytest.raises(InvalidInput, match=r"line 2: the time '.*' is not a number of seconds"):
            parse_trace(["seconds,event,node", f"{text},add,a"], 1, start="empty")


def test_a_folder_and_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="the trace is a folder: give a text file"):
        read_trace(tmp_path, 4)
    monkeypatch.setattr("solvers.replan.cluster.traces.MOST_BYTES", 40)
    (tmp_path / "long").write_text("1,remove,0\n2,add,0\n" * 3)
    with pytest.raises(InvalidInput, match="the trace has more than 40 bytes: cut it into shorter ones"):
        read_trace(tmp_path / "long", 4)
    with pytest.raises(InvalidInput) as caught:
        parse_trace(["x" * 10_000], 4)
    assert len(str(caught.value)) < 200


def test_spot_instances_are_numbered_as_they_come() -> None:
    lines = ["0,add,i-b", "0,add,i-a", "10,remove,i-b", "20,add,i-c", "30,add,i-b"]
    failures = parse_trace(lines, 3, start="empty")
    assert failures.absent == {0, 1, 2}
    assert [event.node for event in failures.events] == [0, 1, 0, 2, 0]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["1,remove"], r"line 1: '1,remove' has not 3 fields but 2: write milliseconds,add\|remove,node"),
        (["1,remove,0", "", "2,add,0,now"], r"line 3: '2,add,0,now' has not 3 fields but 4"),
        (["one,remove,0"], "line 1: the time 'one' is not a whole number of milliseconds from 0 to"),
        (["-1,remove,0"], "line 1: the time '-1' is not a whole number"),
        (["1.5,remove,0"], "line 1: the time '1.5' is not a whole number"),
        (["99999999999999999999,remove,0"], "line 1: the time '99999999999999999999' is not a whole number"),
        (["9,remove,0", "8,remove,1"], "line 2: the time 8 ms is before 9 ms, the line before it: sort the trace"),
        (["s,event,node", "9.5,remove,0", "8,remove,1"], "line 3: the time 8 s is before 9.5 s, the line before it"),
        (["1,fail,0"], "line 1: 'fail' is neither add nor remove: write one of them"),
        (["1,add,0"], "line 1: node '0' is added, but it is present already: drop the line"),
        (["1,remove,0", "# gone", "2,remove,0"], "line 3: node '0' is removed, but it is absent: drop the line"),
        (["1,remove,4"], "line 1: node '4' is none of 0…3: name a node of the cluster"),
        (["1,remove,"], "line 1: node '' is none of 0…3"),
        (['1,remove,"0'], """line 1: '1,remove,"0' is no line of CSV"""),
    ],
)
def test_a_line_that_means_nothing_is_named(lines: list[str], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"^trace, {sentence}") as caught:
        parse_trace(lines, 4)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["0,add,a", "0,add,a"], "line 2: node 'a' is added, but it is present already"),
        (["0,add,a", "0,remove,b"], "line 2: node 'b' is removed, but it is absent"),
        (["0,add,a", "0,remove,a", "0,remove,a"], "line 3: node 'a' is removed, but it is absent"),
        (
            ["0,add,a", "0,remove,a", "0,add,b", "0,add,c", "0,remove,a"],
            "line 5: node 'a' is removed, but it is absent",
        ),
        (["0,add,"], "line 1: the node has no name"),
    ],
)
def test_so_it_is_where_nodes_have_names(lines: list[str], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"^trace, {sentence}"):
        parse_trace(lines, 2, start="empty")


def test_a_trace_without_events_is_no_quiet_run(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    for text in ("", "# nothing yet\n\n"):
        path.write_text(text)
        with pytest.raises(InvalidInput, match=r"empty.csv holds no event: write lines milliseconds,add\|remove,node"):
            read_trace(path, 4)


def test_a_byte_order_mark_is_no_part_of_the_first_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbf5,remove,3\r\n")
    assert read_trace(path, 4).events == (Event(5000, 3, "failed"),)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("absent.csv", "binary"):
        with pytest.raises(InvalidInput, match=f"{name}: the trace cannot be read"):
            read_trace(tmp_path / name, 4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(4, 9))
def test_failures_written_as_a_trace_are_the_same_failures(seed: int, nodes: int) -> None:
    setting = by_hand(problem=model(nodes, 8, 4), duration_us=20_000 * SECOND, repair=Repair(500))
    drawn = random_failures(setting, seed).events
    lines = [f"{e.at_us // 1000},{'remove' if e.kind == 'failed' else 'add'},{e.node}" for e in drawn]
    read = parse_trace(lines, nodes).events
    assert [(event.node, event.kind) for event in read] == [(event.node, event.kind) for event in drawn]
    assert [event.at_us // 1000 for event in read] == [event.at_us // 1000 for event in drawn]
