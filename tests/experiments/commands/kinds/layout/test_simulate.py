"""`bayplan simulate` of a layout plan: five lanes that end when the judge says, no two tasks of a lane at once."""

import json
from itertools import pairwise
from pathlib import Path

from experiments.commands.kinds.layout.simulate import LANES, simulate
from solvers.check.layout.floor import base_us
from solvers.check.layout.judge import device_peak, judge_layout
from solvers.ir import Limits
from solvers.ir.codec import read_problem
from solvers.ir.layout import LayoutProblem
from solvers.planner import build_solver
from tests.experiments.commands.console import ROOT, call, refused

SHIPPED = ROOT / "experiments" / "instances" / "layout-gpt2-10b-3090.json"


def test_a_plan_s_lanes_and_its_trace(tmp_path: Path) -> None:
    plan, trace = tmp_path / "plan.json", tmp_path / "trace.json"
    solved = call("solve", SHIPPED, "--solver", "search", "--out", plan)
    outcome = call("simulate", SHIPPED, plan, "--trace", trace)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.figure("makespan") == solved.figure("objective")
    assert outcome.figure("base") == solved.figure("base")
    assert outcome.figure("plan").startswith("keep ") and outcome.figure("plan").endswith("for 49 chunks")
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert len({event["tid"] for event in events}) == len(LANES)
    names = [event["name"] for event in events]
    assert names.count("forward of layer 0") == 1
    assert names.count("load of chunk 0") >= names.count("offload of chunk 0")
    arrows = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "s"]
    assert arrows, "every wait is an arrow"


def test_a_plan_that_breaks_its_problem_is_not_simulated(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert call("solve", SHIPPED, "--solver", "search", "--out", plan).code == 0
    raw = json.loads(plan.read_text())
    raw["decision"]["buffers"] = 10**4
    plan.write_text(json.dumps(raw))
    outcome = call("simulate", SHIPPED, plan)
    assert outcome.code == 1 and outcome.out.startswith("violation: ")
    assert "cannot read" in refused(call("simulate", SHIPPED, tmp_path / "none.json"))


def test_what_is_printed_is_the_judge_s() -> None:
    problem, _ = read_problem(SHIPPED)
    assert isinstance(problem, LayoutProblem)
    plan = build_solver("search", {}).solve(problem, Limits()).plan
    assert plan is not None
    shown = simulate(problem, plan)
    assert shown.schedule is not None and shown.report.base_us == base_us(problem)
    assert shown.report.makespan_us == judge_layout(problem, plan).objective_us
    assert shown.report.peak_bytes == device_peak(problem, plan)[0]
    for lane in LANES:
        spans = sorted((span.start_us, span.end_us) for span in shown.report.spans if span.lane == f"0.{lane}")
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
