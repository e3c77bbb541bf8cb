"""`bayplan check` on another planner's policy: verdict, exit code, counter-plan, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from solvers.ir.codec import problem_to_raw, write_json
from solvers.ir.policy import Policy
from tests.experiments.commands.console import call, refused, write_problem
from tests.solvers.joint.test_policy import chain


def _files(folder: Path, budget_bytes: int, **fields: Any) -> tuple[Path, Path]:
    problem, policy = folder / "p.json", folder / "policy.json"
    write_json(problem, problem_to_raw(chain(budget_bytes)))
    policy.write_text(json.dumps({"format": "bayplan-policy/1", "name": "theirs", **fields}))
    return problem, policy


def test_a_policy_beyond_the_budget(tmp_path: Path) -> None:
    """Everything saved takes 17 bytes, and 13 are there: exit code 1, and our plan at 13 passes its check."""
    problem, policy = _files(tmp_path, 13, saved=["*"])
    outcome = call("check", problem, policy, "--counter-plan", tmp_path / "c.json", "--counter-solver", "greedy-joint")
    assert (outcome.code, outcome.err) == (1, "")
    assert "violation: stage 4 has 17 bytes in use, budget 13" in outcome.out
    assert outcome.figure("peak") == "17 bytes, 4 bytes above it"
    assert outcome.figure("the peak lies") == "at op 4 (d backward)"
    assert outcome.figure("over the base") == "0 %"
    assert outcome.figure("counter-plan").startswith("greedy-joint: feasible")
    assert call("check", problem, tmp_path / "c.json").code == 0


def test_a_policy_within_it(tmp_path: Path) -> None:
    """Op 2 again in stage 4: the stage holds ops 0, 1 and 3, op 2 again, and its own byte."""
    problem, policy = _files(tmp_path, 17, recomputed=["b"], others="saved", nodes=None)
    outcome = call("check", problem, policy, "--json", "--counter-solver", "none")
    assert json.loads(outcome.out)["again_us"] == 110  # both "b + c" and "b" are called b
    policy.write_text(policy.read_text().replace('["b"]', "[2]"))
    outcome = call("check", problem, policy, "--json", "--counter-solver", "none")
    told = json.loads(outcome.out)
    assert (outcome.code, told["clean"], told["peak_bytes"], told["again_us"]) == (0, True, 17, 100)
    assert told["step_us"] == told["base_us"] + 100 and "counter" not in told


@pytest.mark.parametrize(
    ("arguments", "fields", "sentence"),
    [
        (["--counter-solver", "opt"], {}, "there is no planner of counter-plans 'opt'"),
        (["--counter-time-limit", "nan"], {}, "--counter-time-limit is nan"),
        (["--counter-solver", "none", "--counter-time-limit", "3"], {}, "there is no counter-plan"),
        ([], {"saved": ["zzz"]}, "no op of the forward pass 'zzz'"),
        ([], {"saved": [True]}, "saved[0]"),
        ([], {"kept": ["a"]}, "kept"),
        ([], {"saved": []}, "both empty"),
        ([], {"saved": [0], "nodes": []}, "nodes is empty"),
        ([], {"format": "bayplan-policy/2"}, "format 'bayplan-policy/2', but 'bayplan-plan/1' is expected here, or"),
        (["--counter-solver", "none"], {"format": None}, "format None, but 'bayplan-plan/1' is expected here, or"),
    ],
)
def test_bad_input_is_a_sentence(tmp_path: Path, arguments: list[str], fields: dict[str, Any], sentence: str) -> None:
    problem, policy = _files(tmp_path, 17, **({"saved": ["*"]} | fields))
    assert sentence in refused(call("check", problem, policy, *arguments))


@pytest.mark.parametrize("text", ["", "[]", "null", '{"format": "bayplan-policy/1", "na'])
def test_damaged_files_are_a_sentence(tmp_path: Path, text: str) -> None:
    problem, policy = _files(tmp_path, 17, saved=["*"])
    policy.write_text(text)
    assert "is not valid JSON" in (said := refused(call("check", problem, policy))) or Policy.FORMAT in said


def test_policies_are_for_joint_problems_and_the_options_for_policies(tmp_path: Path) -> None:
    _, policy = _files(tmp_path, 17, saved=["*"])
    other = write_problem(tmp_path / "swap.json")
    assert "a policy is judged against a joint problem" in refused(call("check", other, policy))
    plan = tmp_path / "plan.json"
    assert call("solve", other, "--solver", "greedy-swap", "--out", plan).code == 0
    assert "--counter-solver is for policies" in refused(call("check", other, plan, "--counter-solver", "joint"))
