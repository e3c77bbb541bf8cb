"""`bayplan make`: budgets as people write them, machines by name or path."""

from pathlib import Path

import msgspec
import pytest

from experiments.hardware import SHIPPED, hardware_names
from solvers.ir import OpGraph, SwapProblem
from solvers.ir.codec import document_to_raw, read_document, read_problem, write_json
from solvers.ir.graph import OTHER_SEQUENCE
from tests.experiments.commands.console import Outcome, call, refused, write_graph


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return write_graph(tmp_path / "g.json")


def make(graph: Path, *arguments: str, hardware: str = "sim-small") -> Outcome:
    out = graph.with_name("p.json")
    return call("make", "swap", "--graph", graph, "--hardware", hardware, "--out", out, *arguments)


def made(graph: Path) -> SwapProblem:
    problem, _ = read_problem(graph.with_name("p.json"))
    assert isinstance(problem, SwapProblem)
    return problem


@pytest.mark.parametrize(
    ("budget", "amount"),
    [
        ("150000000", 150_000_000),
        ("150MB", 150_000_000),
        ("150 mb", 150_000_000),
        ("0.15GB", 150_000_000),
        ("1.5KiB", 1536),
        ("8GiB", 8 << 30),
        ("1TiB", 1 << 40),
        ("7B", 7),
        ("75%", 150_000_000),
        ("100 %", 200_000_000),
        ("33.333333333%", 66_666_666),
        ("120%", 240_000_000),
    ],
)
def test_budgets(graph: Path, budget: str, amount: int) -> None:
    """140 MB is the least that any plan needs, 200 MB what none needs: outside there is a warning, and a problem."""
    outcome = make(graph, "--budget", budget)
    assert outcome.code == 0
    told = [
        *(["no plan fits the budget of"] if amount < 140_000_000 else []),
        *(["so nothing has to leave: give less"] if amount >= 200_000_000 else []),
    ]
    assert len(outcome.err.splitlines()) == len(told)
    assert all(sentence in outcome.err for sentence in told)
    assert made(graph).budget_bytes == amount
    assert outcome.figure("budget").startswith(f"{amount} bytes")
    assert outcome.figure("peak of the graph") == "200000000 bytes (190.73 MiB)"


@pytest.mark.parametrize(
    "budget", ["", "0", "0.0000001%", "-5", "8G", "8XB", "many", "1.5", "55%%", "-3%", "1e9", "٣", "99999TiB", "9" * 30]
)
def test_budgets_that_mean_nothing(graph: Path, budget: str) -> None:
    said = refused(make(graph, "--budget", budget))
    assert f"--budget is {budget!r}" in said
    assert not graph.with_name("p.json").exists()


def test_a_budget_that_no_plan_fits_is_told_with_the_least_that_one_does(graph: Path) -> None:
    said = make(graph, "--budget", "30%").err
    assert said == (
        "bayplan: warning: no plan fits the budget of 60000000 bytes (57.22 MiB): the least feasible one is 140000000 "
        "bytes (133.51 MiB), 70.0% of the peak (of plans that swap this problem's tensors; a session "
        "(runtime.swap.session) may need less)\n"
    )


def test_a_limit_of_host_memory_is_part_of_the_problem(graph: Path) -> None:
    make(graph, "--budget", "80%")
    assert made(graph).host_budget_bytes is None
    make(graph, "--budget", "80%", "--host-budget", "30MB", "--host-rounding", "power-of-two")
    problem = made(graph)
    assert (problem.host_budget_bytes, problem.host_rounding) == (30_000_000, "power-of-two")
    short = make(graph, "--budget", "80%", "--host-budget", "1MB").err
    assert (
        "while the host holds at most 1000000 bytes (976.56 KiB): the budget must be at least 199000000 bytes" in short
    )
    unitless = refused(make(graph, "--host-budget", "55"))
    assert "--host-budget is '55', a number without a unit: write 55% for a share, or bytes with a suffix" in unitless
    assert "--host-budget is 'some'" in refused(make(graph, "--host-budget", "some"))


@pytest.mark.parametrize(("budget", "meant"), [("55", "55%"), ("0.55", "55%"), ("99.5", "99.5%"), ("1", "1%")])
def test_a_budget_without_a_unit_is_taken_for_a_forgotten_one(graph: Path, budget: str, meant: str) -> None:
    said = refused(make(graph, "--budget", budget))
    assert said.startswith(f"--budget is {budget!r}, a number without a unit: write {meant} for a share")


def test_a_graph_that_no_plan_can_help_or_follow_is_told(graph: Path) -> None:
    step = read_document(graph, OpGraph)
    ops = tuple(msgspec.structs.replace(op, phase="forward") for op in step.ops)
    write_json(graph, document_to_raw(msgspec.structs.replace(step, ops=ops, source=f"a step; {OTHER_SEQUENCE}")))
    never, other = make(graph).err.splitlines()[:2]
    assert "none of the 6 operators of tiny step belongs to a backward pass" in never
    assert "runs other operators from one step to the next (6 in the profiled one)" in other


def test_without_a_budget_it_is_the_devices_memory(graph: Path) -> None:
    assert make(graph).code == 0
    assert made(graph).budget_bytes == 4 << 30


def test_every_shipped_hardware_is_found_by_name_and_by_path(graph: Path) -> None:
    assert "sim-small" in hardware_names()
    for name in hardware_names():
        assert make(graph, "--budget", "75%", hardware=name).figure("hardware") == name
        by_name = made(graph)
        assert make(graph, "--budget", "75%", hardware=str(SHIPPED / f"{name}.json")).code == 0
        assert made(graph) == by_name


def test_hardware_that_is_not_there(graph: Path, tmp_path: Path) -> None:
    assert refused(make(graph, hardware="sim-smal")) == "there is no hardware 'sim-smal': did you mean 'sim-small'?"
    assert "cannot read" in refused(make(graph, hardware=str(tmp_path / "h.json")))
    assert "'bayplan-hardware/1' is expected here" in refused(make(graph, hardware=str(graph)))


def test_kinds_that_are_made_otherwise_or_not_at_all(graph: Path) -> None:
    rest = ["--graph", graph, "--hardware", "sim-small", "--out", graph.with_name("p.json")]
    said = refused(call("make", "partition", *rest))
    assert said.startswith("partition problems cannot be made from a graph: this works for ") and "swap" in said
    assert refused(call("make", "swop", *rest)) == "there is no kind 'swop': did you mean 'swap'?"


def test_an_output_over_an_input_is_refused(graph: Path) -> None:
    before = graph.read_text()
    said = refused(call("make", "swap", "--graph", graph, "--hardware", "sim-small", "--out", graph))
    assert "would write over the input" in said
    assert graph.read_text() == before


def test_from_graph_to_timeline(graph: Path, tmp_path: Path) -> None:
    """The tiny step in megabytes at 12 GB/s: 60 MB leave and return in 5,008 us each, hidden behind 10 ms ops."""
    assert make(graph, "--budget", "150MB").code == 0
    problem, plan = tmp_path / "p.json", tmp_path / "plan.json"
    assert call("solve", problem, "--solver", "milp-swap", "--out", plan).figure("objective") == "60000 µs"
    assert call("check", problem, plan).code == 0
    assert call("simulate", problem, plan).figure("makespan") == "60000 µs"


def test_the_help_of_a_kind_lists_its_options_only() -> None:
    swap, partition, all_kinds = (call("make", *kind, "--help").out for kind in (["swap"], ["partition"], []))
    assert "--host-budget" in swap and "--data-parallel " not in swap.partition("Options of swap")[2]
    assert "--stage " not in partition.partition("Options of partition")[2]
    assert "--host-budget" in all_kinds and "`bayplan make KIND --help`" in all_kinds
    assert refused(call("make", "swop", "--help")).startswith("there is no kind 'swop': did you mean 'swap'?")


def test_a_budget_that_may_be_a_slip_is_questioned(tmp_path: Path) -> None:
    cut = ["--shape", "gpt-1.3b", "--tensor", 4, "--pipeline", 4, "--microbatch", 8, "--hardware", "lynx-nvlink"]
    asked = ["make", "recompute-layer", *cut, "--out", tmp_path / "layer.json", "--budget"]
    assert "the budget of 8000 has no unit, so it is of 8000 bytes (7.81 KiB), 1/" in call(*asked, 8000).err
    assert "is not below the peak of" in call(*asked, "400GiB").err
    assert "is not below the peak of" in call(*asked, "100%").err
    assert call(*asked, "90%").err == ""
