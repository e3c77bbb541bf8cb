"""`bayplan pareto`: monotone, within its bounds, with a picture; and what is refused."""

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.commands import pareto as command
from experiments.joint.pareto import Allowed, Crossing, Pareto, Point, curve, first_paying
from solvers.ir import Limits
from tests.experiments.commands.console import call, refused
from tests.solvers.joint.test_policy import chain

SHAPE = ("--shape", "llama-3-8b", "--microbatch", 1, "--pipeline", 32, "--stage", 5, "--hardware", "a100-sxm-80")
FEW = ("--budgets", 3, "--work", 0.001)


def test_a_shape(tmp_path: Path) -> None:
    picture = tmp_path / "p.svg"
    outcome = call("pareto", *SHAPE, *FEW, "--json", "--picture", picture)
    assert (outcome.code, outcome.err) == (0, "")
    told = json.loads(outcome.out)
    points = told["points"]
    assert [point["budget_bytes"] for point in points][:: len(points) - 1] == [
        told["least_budget_bytes"],
        told["peak_bytes"],
    ]
    for point in points:
        assert told["base_us"] <= point["bound_us"] <= point["joint_us"] <= point["greedy_us"]
    for field in ("greedy_us", "joint_us", "bound_us"):
        steps = [point[field] for point in points]
        assert steps == sorted(steps, reverse=True)
    assert points[-1]["joint_us"] == told["base_us"]
    both = [rate["both_us"] for rate in told["rates"]]
    assert both == sorted(both, reverse=True) and len(told["lengths"]) == 5
    assert picture.read_text().startswith("<?xml")


def test_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    points = (Point(100, None, None, 60.0, None, None), Point(200, 90, 80, 60.0, 200, 200))
    rates = (Crossing(10**9, 100, 100), Crossing(2 * 10**9, 100, 90))
    made = Pareto("step", "h200", 60, 10, 100, 300, points, 0.1, rates, (Crossing(512, 100, 100),))
    monkeypatch.setattr(command, "_found", lambda *_: made)
    outcome = call("pareto", *SHAPE)
    assert outcome.figure("it pays from a link of") == "2 GB/s on (tried: 1, 2)"
    assert outcome.figure("and from a sequence of") == "none up to 512 tokens"
    assert "66.7 %              0.090 (+50 %)  0.080 (+33.3 %)  0.060 (+0 %)   25 %" in outcome.out
    nothing = Pareto("step", "h200", 60, 10, 100, 300, points[:1], 0.1, rates[:1], ())
    monkeypatch.setattr(command, "_found", lambda *_: nothing)
    outcome = call("pareto", *SHAPE)
    assert outcome.code == 1 and "not even 1 GB/s beats recomputation alone" in outcome.out


def test_a_time_limit_that_is_over_leaves_one_budget_and_says_so() -> None:
    """Its plans are those without a search, its bound holds; where swapping pays is not told."""
    outcome = call("pareto", *SHAPE, *FEW, "--time-limit", 0, "--json")
    told = json.loads(outcome.out)
    assert outcome.code == 0
    assert "--time-limit was over before the end: 1 of 3 budgets" in outcome.err
    (point,) = told["points"]
    assert told["base_us"] <= point["bound_us"] <= point["joint_us"]
    assert told["out_of_time"] and told["rates"] == []
    assert "swapping_pays_from_bytes_per_s" not in told
    assert refused(call("pareto", *SHAPE, "--time-limit", -1)) == "--time-limit is -1.0: give at least 0"


def test_parts_share_what_is_left_of_the_time() -> None:
    allowed = Allowed(Limits(time_s=60.0, work=1.0), time.perf_counter() + 100.0)
    assert 9.0 < allowed.among(10).time_s <= 10.0
    assert allowed.among(1).time_s == 60.0
    assert not allowed.over and Allowed(Limits(), 0.0).over
    assert Allowed(Limits(), 0.0).among(3).time_s == 0.0


def test_a_small_budgets_plan_stands_at_a_larger_one_where_the_solver_finds_a_worse() -> None:
    points = curve(chain(), 5, Allowed(Limits(work=0.001, time_s=60.0)))
    for smaller, larger in pairwise(points):
        assert larger.joint_us is not None and smaller.joint_us is not None
        assert larger.joint_us <= smaller.joint_us and larger.bound_us <= smaller.bound_us
        assert larger.joint_from is not None and larger.joint_from <= larger.budget_bytes


def test_where_swapping_pays() -> None:
    pays, not_yet, no_rival = Crossing(8, 100, 90), Crossing(4, 100, 100), Crossing(2, None, 100)
    assert first_paying([not_yet, pays]) == 8
    assert first_paying([pays, not_yet]) is None
    assert first_paying([no_rival, pays]) == 2
    assert first_paying([]) is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--hardware", "h200"], "give either MODULE:FACTORY or --shape NAME"),
        (["a:b", *SHAPE], "give either MODULE:FACTORY or --shape NAME"),
        ([*SHAPE, "--position", "nan"], "--position is nan"),
        ([*SHAPE, "--work", "inf"], "--work is inf"),
        ([*SHAPE, "--picture", "p.gif"], "end it in .svg or .png"),
        ([*SHAPE, "--picture", "no/where/p.svg"], "--picture"),
        ([*SHAPE, "--budgets", "1"], "--budgets"),
        (["a:b", "--layers", "3", "--hardware", "h200"], "--layers says how a --shape is cut"),
        (["no_such:thing", "--hardware", "h200"], "no_such"),
    ],
)
def test_bad_input_is_a_sentence(arguments: list[object], sentence: str) -> None:
    assert sentence in refused(call("pareto", *arguments))
