"""Replan problems on the command line: solved, checked and simulated; what cannot be is told in one sentence."""

import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from solvers.planner import solver_names
from tests.experiments.commands.console import ROOT, call, refused

INSTANCES = ROOT / "experiments" / "instances"
SOLVERS = solver_names("replan")
Change = Callable[[dict[str, Any]], None]


def changed(folder: Path, change: Change, name: str = "replan-8-to-7") -> Path:
    """A shipped instance with something else in it."""
    raw = json.loads((INSTANCES / f"{name}.json").read_text())
    change(raw)
    place = folder / "problem.json"
    place.write_text(json.dumps(raw))
    return place


def test_every_solver_of_the_paper_is_there() -> None:
    listed = call("solvers").out
    assert all(f"  {name} " in listed for name in SOLVERS)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["replan-8-to-7", "replan-8-to-7-short", "replan-32-to-24-tp8", "replan-figure-3"])
def test_a_shipped_instance_is_solved_checked_and_simulated(tmp_path: Path, solver: str, name: str) -> None:
    problem, plan, trace = INSTANCES / f"{name}.json", tmp_path / "plan.json", tmp_path / "trace.json"
    solved = call("solve", problem, "--solver", solver, "--out", plan)
    assert (solved.code, solved.err) == (0, "")
    objective = solved.figure("objective")
    checked = call("check", problem, plan)
    assert (checked.code, checked.figure("verdict")) == (0, "no violations")
    assert checked.figure("objective, recomputed") == objective
    simulated = call("simulate", problem, plan, "--trace", trace)
    assert (simulated.code, simulated.err) == (0, "")
    events = json.loads(trace.read_text())["traceEvents"]
    ends = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    assert simulated.figure("makespan") == f"{ends:.0f} µs, transition and one step"


def test_simulate_tells_the_transition_the_step_and_who_waits(tmp_path: Path) -> None:
    """Node 7 of two pipelines of four stages is lost: the last stage's other node does its microbatches too."""
    problem, plan = INSTANCES / "replan-8-to-7.json", tmp_path / "plan.json"
    assert call("solve", problem, "--solver", "reroute", "--out", plan).code == 0
    simulated = call("simulate", problem, plan)
    assert simulated.figure("plan") == "reroute: 1F1B with passes rerouted, 2 pipelines on 7 of 7 nodes"
    assert simulated.figure("restart") == "0 µs"
    assert simulated.figure("transfers") == "0 µs, layers: 0"
    assert "by F7, the objective's formula (+0." in simulated.figure("step")
    assert simulated.figure("busiest node").startswith("3, which computes for ")
    assert simulated.figure("synchronization") == f"{8 * 16191} µs, rounds of layers: 8"
    assert call("solve", problem, "--solver", "algorithm1", "--out", plan).code == 0
    replanned = call("simulate", problem, plan)
    assert replanned.figure("restart") == "1930000 µs"
    assert replanned.figure("plan") == "dynamic: 1F1B, 2 pipelines on 7 of 7 nodes"
    assert "F7" not in replanned.out


def test_settings_of_the_solvers(tmp_path: Path) -> None:
    problem = INSTANCES / "replan-8-to-7-short.json"
    assert call("solve", problem, "--solver", "algorithm1", "--set", "delta=0").code == 0
    assert call("solve", problem, "--solver", "oobleck", "--set", "batches=equal", "--set", "faults=2").code == 0
    assert "there is no choice for batches of oobleck 'equl'" in refused(
        call("solve", problem, "--solver", "oobleck", "--set", "batches=equl")
    )
    assert "there is no parameter of algorithm1 'deltas': did you mean 'delta'?" in refused(
        call("solve", problem, "--solver", "algorithm1", "--set", "deltas=1")
    )


@pytest.mark.parametrize(
    ("solver", "setting"),
    [
        ("algorithm1", "delta=-1"),
        ("algorithm1", "least_depth=0"),
        ("algorithm1", "most_placements=0"),
        ("oobleck", "faults=-1"),
        ("oobleck", "most_instantiations=0"),
        ("recycle", "weight_share=2"),
        ("recycle", "weight_share=-0.5"),
        ("symmetric", "most_placements=0"),
    ],
)
def test_settings_that_mean_nothing(tmp_path: Path, solver: str, setting: str) -> None:
    plan = tmp_path / "plan.json"
    problem = INSTANCES / "replan-8-to-7.json"
    said = refused(call("solve", problem, "--solver", solver, "--set", setting, "--out", plan))
    assert setting.partition("=")[0] in said
    assert not plan.exists()


def lose(*nodes: int) -> Change:
    def change(raw: dict[str, Any]) -> None:
        raw["current"]["failed"] = list(nodes)
        raw["nodes"] = 8 - len(nodes)

    return change


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lose(3, 7), "checkpoint"),
        (lambda raw: raw.update(sharded_optimizer=True), "checkpoint"),
        (lambda raw: raw.update(memory_bytes=10**9), "bytes"),
        (lambda raw: raw.update(expected_interval_us=0), "expected interval"),
    ],
)
def test_no_decision_is_an_answer_with_its_reason(tmp_path: Path, solver: str, change: Change, says: str) -> None:
    """Layers 24 to 31 were on nodes 3 and 7; a gigabyte holds no stage of one layer."""
    problem, plan = changed(tmp_path, change), tmp_path / "plan.json"
    solved = call("solve", problem, "--solver", solver, "--out", plan)
    assert (solved.code, solved.err) == (1, "")
    assert solved.figure("status") == "infeasible"
    assert says in solved.figure("reason")
    assert json.loads(plan.read_text())["decision"] is None
    for command in ("check", "simulate"):
        judged = call(command, problem, plan)
        assert judged.code == 1
        assert "there is no decision to judge" in judged.out


def test_the_least_memory_is_said(tmp_path: Path) -> None:
    """The same problem with that memory has a plan, with a byte less it has none."""
    problem = changed(tmp_path, lambda raw: raw.update(memory_bytes=10**9))
    reason = call("solve", problem, "--solver", "exact-replan").figure("reason")
    least = next(int(word) for word in reason.replace(",", " ").split() if word.isdigit() and int(word) > 10**9)
    for memory, code in ((least, 0), (least - 1, 1)):
        asked = changed(tmp_path, lambda raw, memory=memory: raw.update(memory_bytes=memory))  # type: ignore[misc]
        assert call("solve", asked, "--solver", "exact-replan").code == code, reason


def _set(**fields: Any) -> Change:
    return lambda raw: raw.update(fields)


def _first(**fields: Any) -> Change:
    return lambda raw: raw["current"]["pipelines"][0].update(fields)


def _failed(*nodes: Any) -> Change:
    return lambda raw: raw["current"].update(failed=list(nodes))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_set(nodes=0), "nodes is 0, but `int` >= 1 is needed here"),
        (_set(nodes=3), "current has 7 nodes alive, more than nodes = 3"),
        (_set(nodes=10**7), "nodes is 10000000, but at most 100000 can be planned"),
        (_set(microbatches=0), "microbatches is 0"),
        (_set(microbatches=1), "data_parallel is 2, more than the 1 microbatches of a step"),
        (_set(data_parallel=3), "data_parallel is 3, but current lists 2 pipelines"),
        (_set(forward_us=10**18), "forward_us is 1000000000000000000, but `int` <= 9007199254740992 is needed"),
        (_set(forward_us=10**15), "a step may take"),
        (_set(layer_static_bytes=2**53), "a stage may hold"),
        (_set(forward_us="12"), 'forward_us is "12", but `int` is needed here'),
        (_set(forward_us=1.5), "forward_us is 1.5, but `int` is needed here"),
        (_set(max_depth=None), "max_depth is null, but `int` is needed here"),
        (_set(bytes_per_s=0), "bytes_per_s is 0, but `int` >= 1 is needed here"),
        (_set(restart_us=None), "current needs restart_us, bytes_per_s and expected_interval_us beside it"),
        (_set(deepest=3), "has the unknown key `deepest`"),
        (_failed(7, 7), "failed node 7 appears twice"),
        (_failed(70), "failed names node 70, which stands in no current pipeline"),
        (_failed(*range(9)), "failed names 9 nodes, but only 8 ran"),
        (_failed("last"), 'current.failed[0] is "last"'),
        (_first(nodes=[0, 1, 2, 2]), "node 2 appears twice"),
        (_first(nodes=[0, 1, 2, 4]), "node 4 appears twice"),
        (_first(nodes=[0, 1, 2]), "a current pipeline has 4 stages but 3 nodes"),
        (_first(layers=[8, 8, 8, 9]), "current.pipelines[0] holds 33 of 32 layers"),
        (_first(layers=[8, 8, 16, 0]), "layers[3] is 0, but `int` >= 1 is needed here"),
        (_first(microbatches=-1), "microbatches is -1"),
        (lambda raw: raw["current"].update(pipelines=[]), "pipelines is empty: list those that ran"),
    ],
)
def test_problems_that_mean_nothing(tmp_path: Path, change: Change, says: str) -> None:
    problem, plan = changed(tmp_path, change), tmp_path / "plan.json"
    said = refused(call("solve", problem, "--solver", "algorithm1", "--out", plan))
    assert says in said
    assert str(problem) in said
    assert not plan.exists()


ODD: list[Any] = [None, -1, 0, 1, 2.5, "7", [], {}, [0, 0], 2**53, 10**18, 10**30, True]


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, of a list its first element only."""
    if place:
        yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, part in inside:
        yield from _places(part, (*place, key))


def test_no_value_anywhere_is_a_fault_of_ours(tmp_path: Path) -> None:
    """Whatever stands in whatever place: a judged plan, a no with its reason, or one sentence that names the file."""
    text = (INSTANCES / "replan-figure-3.json").read_text()
    problem, plan = tmp_path / "problem.json", tmp_path / "plan.json"
    codes = []
    for number, (place, odd) in enumerate(product(_places(json.loads(text)), ODD)):
        raw = json.loads(text)
        holder = raw
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = odd
        problem.write_text(json.dumps(raw))
        solver = SOLVERS[number % len(SOLVERS)]
        solved = call("solve", problem, "--solver", solver, "--out", plan)
        codes.append(solved.code)
        if solved.code == 2:
            assert str(problem) in refused(solved), (place, odd)
            continue
        assert solved.code in (0, 1), (place, odd, solver, solved.err)
        assert call("check", problem, plan).code == solved.code, (place, odd, solver)
    assert {0, 1, 2} == set(codes)


def test_algorithm_1_needs_to_know_the_degree_before(tmp_path: Path) -> None:
    def forget(raw: dict[str, Any]) -> None:
        for key in ("current", "data_parallel", "restart_us", "bytes_per_s", "expected_interval_us"):
            del raw[key]

    problem, plan = changed(tmp_path, forget), tmp_path / "plan.json"
    said = refused(call("solve", problem, "--solver", "algorithm1", "--out", plan))
    assert "data_parallel" in said
    assert not plan.exists()
    assert call("solve", problem, "--solver", "exact-replan").code == 0
    assert call("solve", problem, "--solver", "reroute").code == 1


def test_a_solver_of_another_kind(tmp_path: Path) -> None:
    said = refused(call("solve", INSTANCES / "replan-8-to-7.json", "--solver", "dp"))
    assert said == f"dp solves partition problems, but this is a replan one: choose {' or '.join(SOLVERS)}"


def test_only_solvers_of_this_kind_are_suggested() -> None:
    nope = refused(call("solve", INSTANCES / "replan-8-to-7.json", "--solver", "nope"))
    assert nope == f"there is no solver 'nope': choose of {', '.join(sorted(SOLVERS))}"
