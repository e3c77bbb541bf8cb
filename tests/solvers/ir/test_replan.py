"""What a replan problem refuses, each in a sentence that holds the value, the limit and the remedy."""

from typing import Any

import pytest

from solvers.ir import CurrentPipeline, CurrentState, Hosts, InvalidInput, InvalidProblem, ReplanProblem
from solvers.ir.codec import problem_from_raw, problem_to_raw
from solvers.ir.fields import LARGEST

TWO = ((0, 1), (2, 3))
"""The nodes of two pipelines of two stages."""


def state(*failed: int, nodes: tuple[tuple[int, ...], ...] = TWO) -> CurrentState:
    """Pipelines of two layers a stage, two microbatches each."""
    pipelines = tuple(CurrentPipeline(layers=(2,) * len(row), nodes=row, microbatches=2) for row in nodes)
    return CurrentState(pipelines=pipelines, failed=failed)


def replan(**fields: Any) -> ReplanProblem:
    """Four layers, four microbatches, three nodes."""
    usual: dict[str, Any] = {
        "name": "r", "nodes": 3, "microbatches": 4, "layers": 4, "forward_us": 1, "backward_us": 2,
        "first_extra_us": (0, 0), "last_extra_us": (0, 0), "p2p_us": 0, "sync_us": 0, "memory_bytes": 99,
        "layer_static_bytes": 1, "layer_activation_bytes": 1, "first_static_bytes": 0, "last_static_bytes": 0,
        "max_depth": 4,
    }  # fmt: skip
    return ReplanProblem(**{**usual, **fields})


def failure(*failed: int, **fields: Any) -> ReplanProblem:
    """The same after failures in two pipelines."""
    beside = {"current": state(*failed), "restart_us": 1, "bytes_per_s": 1, "expected_interval_us": 9}
    return replan(**{**beside, **fields})


def test_failures_are_of_nodes_that_ran() -> None:
    assert failure(3).current == state(3)
    with pytest.raises(InvalidProblem, match="failed names node 7, which stands in no current pipeline"):
        state(3, 7)
    with pytest.raises(InvalidProblem, match="failed names 5 nodes, but only 4 ran"):
        state(0, 1, 2, 3, 4)
    with pytest.raises(InvalidProblem, match="pipelines is empty: list those that ran"):
        state(nodes=())


def test_degrees_that_contradict_what_ran_or_the_batch() -> None:
    assert failure(3, data_parallel=2).data_parallel == 2
    with pytest.raises(InvalidProblem, match="data_parallel is 3, but current lists 2 pipelines: drop it"):
        failure(3, data_parallel=3)
    with pytest.raises(InvalidProblem, match="data_parallel is 5, more than the 4 microbatches of a step"):
        replan(data_parallel=5)


def test_hosts_are_of_a_running_cluster_and_faster_inside() -> None:
    hosted = failure(3, hosts=Hosts(nodes=2, bytes_per_s=1))
    assert problem_from_raw(problem_to_raw(hosted)) == hosted
    assert problem_to_raw(hosted)["hosts"] == {"nodes": 2, "bytes_per_s": 1}
    with pytest.raises(InvalidProblem, match="hosts needs current and bytes_per_s, between hosts: add them or drop it"):
        replan(hosts=Hosts(nodes=2, bytes_per_s=1))
    with pytest.raises(InvalidProblem, match=r"hosts.bytes_per_s is 1, below bytes_per_s 2 between hosts: a host is"):
        failure(3, bytes_per_s=2, hosts=Hosts(nodes=2, bytes_per_s=1))


@pytest.mark.parametrize(("field", "most"), [("nodes", 10**5), ("microbatches", 10**5), ("layers", 1000)])
def test_counts_that_no_solver_bears(field: str, most: int) -> None:
    assert getattr(replan(**{field: most}), field) == most
    with pytest.raises(InvalidProblem, match=f"{field} is {most + 1}, but at most {most} can be planned"):
        replan(**{field: most + 1})


@pytest.mark.parametrize(
    ("fields", "step"),
    [
        ({"forward_us": LARGEST}, 4 * 4 * (LARGEST + 2)),
        ({"first_extra_us": (LARGEST, LARGEST)}, 4 * (12 + 2 * LARGEST)),
        ({"last_extra_us": (0, LARGEST)}, 4 * (12 + LARGEST)),
        ({"p2p_us": LARGEST}, 4 * (12 + 8 * LARGEST)),
        ({"sync_us": LARGEST}, 48 + LARGEST),
        ({"layer_sync_us": LARGEST}, 48 + 4 * LARGEST),
    ],
)
def test_times_whose_sum_no_file_holds(fields: dict[str, Any], step: int) -> None:
    with pytest.raises(InvalidProblem, match=f"a step may take {step} us, beyond the {LARGEST} that files hold"):
        replan(**fields)


def test_sizes_whose_sum_no_file_holds() -> None:
    with pytest.raises(InvalidProblem, match=f"a stage may hold {4 * (LARGEST + 4)} bytes"):
        replan(layer_static_bytes=LARGEST)
    with pytest.raises(InvalidProblem, match=f"a stage may hold {4 * (1 + 4 * LARGEST)} bytes"):
        replan(layer_activation_bytes=LARGEST)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("nodes", 0, "nodes is 0, but `int` >= 1 is needed here"),
        ("nodes", -3, "nodes is -3, but `int` >= 1 is needed here"),
        ("nodes", 2.5, "nodes is 2.5, but `int` is needed here"),
        ("microbatches", "8", 'microbatches is "8", but `int` is needed here'),
        ("forward_us", 10**18, f"forward_us is {10**18}, but `int` <= {LARGEST} is needed here"),
        ("forward_us", None, "forward_us is null, but `int` is needed here"),
        ("first_extra_us", [1], "first_extra_us is an array of length 1, but `array` of length 2 is needed here"),
        ("sharded_optimizer", 1, "sharded_optimizer is 1, but `bool` is needed here"),
        ("hosts", {"nodes": 0, "bytes_per_s": 1}, "nodes is 0, but `int` >= 1 is needed here"),
        ("hosts", {"nodes": 2}, "bytes_per_s"),
        ("depth", 4, "the top level has the unknown key `depth`"),
        ("current", {"pipelines": [], "failed": []}, "pipelines is empty: list those that ran"),
    ],
)
def test_files_with_malformed_values(field: str, value: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        problem_from_raw({**problem_to_raw(replan()), field: value})
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("within", "ratio", "rounded"),
    [
        (200 * 2**30, "16777216 to 1953125", 215 * 10**9),
        (25_000_000_001, "25000000001 to 25000000000", 25 * 10**9),
    ],
)
def test_rates_whose_ratio_no_solver_can_count_with(within: int, ratio: str, rounded: int) -> None:
    fields: dict[str, Any] = {"bytes_per_s": 25 * 10**9, "layer_static_bytes": 10**10}
    with pytest.raises(InvalidProblem) as refused:
        failure(3, **fields, hosts=Hosts(nodes=8, bytes_per_s=within))
    assert f"hosts.bytes_per_s {within} and bytes_per_s 25000000000 are as {ratio}, but 40000000000 bytes of" in str(
        refused.value
    )
    assert "allow at most 1801439 for the larger number: round both, say to three digits" in str(refused.value)
    assert failure(3, **fields, hosts=Hosts(nodes=8, bytes_per_s=rounded)).hosts is not None
