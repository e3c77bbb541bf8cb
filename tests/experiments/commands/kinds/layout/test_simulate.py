"""`bayplan simulate` of a layout plan: five lanes that end when the judge says, no two tasks of a lane at once."""

import json
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from solvers.check.layout.judge import judge_layout
from solvers.check.layout.lanes import task_spans
from solvers.check.layout.report import LANES, layout_report
from solvers.ir.layout import LayoutPlan, LayoutProblem
from tests.experiments.commands.console import ROOT, call, refused
from tests.strategies import layout_plans, layout_problems

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


def test_a_plan_that_breaks_its_problem_is_not_simulated(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert call("solve", SHIPPED, "--solver", "search", "--out", plan).code == 0
    raw = json.loads(plan.read_text())
    raw["decision"]["buffers"] = 10**4
    plan.write_text(json.dumps(raw))
    outcome = call("simulate", SHIPPED, plan)
    assert outcome.code == 1 and outcome.out.startswith("violation: ")
    assert "cannot read" in refused(call("simulate", SHIPPED, tmp_path / "none.json"))


@given(st.data())
def test_lanes_run_one_task_at_a_time_and_end_when_the_judge_says(data: st.DataObject) -> None:
    problem: LayoutProblem = data.draw(layout_problems())
    plan: LayoutPlan = data.draw(layout_plans(problem))
    objective = judge_layout(problem, plan).objective_us
    if objective is None:  # too few buffers
        return
    spans = task_spans(problem, plan)
    assert layout_report(problem, plan).makespan_us == objective
    for before, after in pairwise(spans):
        assert before.lane != after.lane or before.end_us <= after.start_us
    again = sum(
        block.forward_us for block, policy in zip(problem.blocks, plan.policies, strict=True) if policy == "checkpoint"
    )
    passes = sum(block.forward_us + block.backward_us for block in problem.blocks)
    assert sum(s.end_us - s.start_us for s in spans if s.what in ("forward", "backward")) == passes + again
    for span in (span for span in spans if span.what == "load"):
        assert span.end_us - span.start_us == problem.chunks[span.number].load_us
