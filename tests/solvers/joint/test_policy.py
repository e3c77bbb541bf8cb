"""Policies as decisions, worked out by hand: what runs again where, which names mean what, what is refused."""

from typing import Any

import pytest

from solvers.check.joint import peak_of
from solvers.check.joint.judge import judge_joint
from solvers.ir import InvalidInput, JointOp, JointPlan, JointProblem, SwapLink
from solvers.ir.policy import Policy
from solvers.joint.policy import plan_of_policy


def chain(budget_bytes: int = 100, replays_from: int = 0) -> JointProblem:
    """f0 → f1 → f2 → f3, then b3 … b0, each reading the gradient before it and its forward op's input and output."""
    reads = [(), (0,), (1,), (2,), (2, 3), (1, 2, 4), (0, 1, 5), (0, 6)]
    names = ["a", "b + c", "b", "d", *(f"{name} backward" for name in "dcba")]
    ops = tuple(
        JointOp(name=name, time_us=10**number, output_bytes=4 if number < 4 else 1, inputs=inputs, comm=False)
        for number, (name, inputs) in enumerate(zip(names, reads, strict=True))
    )
    link = SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0)
    return JointProblem(
        name="chain", budget_bytes=budget_bytes, static_bytes=0, ops=ops, link=link, replays_from=replays_from
    )


def again(plan: JointPlan) -> list[tuple[int, int]]:
    return [(stage, op) for stage, op in plan.compute if stage != op]


def policy(**fields: Any) -> Policy:
    return Policy(name="policy", **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"saved": ("*",)}, []),
        ({"recomputed": (1,), "others": "saved"}, [(5, 1)]),  # b2 is the first that needs it, b1 finds it
        ({"saved": (0, 3)}, [(4, 1), (4, 2)]),  # b3 needs op 2, which needs op 1
        ({"saved": ("d",), "recomputed": ("*",)}, None),  # d is in both
        ({"saved": ("d", "c")}, [(4, 2), (6, 0)]),  # c is a part of op 1
        ({"saved": (1,), "nodes": ("d", "a"), "others": "recomputed"}, [(4, 1), (4, 2), (4, 3)]),  # 1 is nodes[1]
        ({"recomputed": ("*",), "regions": ((0, 1), (2, 3))}, [(4, 2), (4, 3), (6, 0)]),  # op 1 is region 1's input
        ({"recomputed": (0, 1, 2), "others": "saved", "regions": ((0, 2),)}, [(5, 0), (5, 1)]),  # up to op 1
        ({"recomputed": (2,), "others": "saved", "backward_from": "c back*"}, [(5, 2)]),
    ],
)
def test_what_runs_again(fields: dict[str, Any], expected: list[tuple[int, int]] | None) -> None:
    if expected is None:
        with pytest.raises(InvalidInput, match="op 3 \\(d\\) is both saved and recomputed"):
            plan_of_policy(chain(), policy(**fields))
        return
    problem = chain()
    plan = plan_of_policy(problem, policy(**fields))
    assert again(plan) == expected
    verdict = judge_joint(problem, plan)
    assert verdict.violations == ()
    assert verdict.objective_us == 11_111_111 + sum(10**op for _, op in expected)


def test_the_judge_names_the_peak_and_the_op_there() -> None:
    """Saving all holds 16 bytes of outputs when b3 makes its own; with op 3 again in stage 4, as much."""
    problem = chain(16)
    for fields in ({"saved": ("*",)}, {"saved": (0, 1, 2)}):
        plan = plan_of_policy(problem, policy(**fields))
        peak = peak_of(problem, plan)
        assert peak is not None and (peak.bytes, peak.stage, peak.op) == (17, 4, 4)
        assert judge_joint(problem, plan).violations == ("stage 4 has 17 bytes in use, budget 16",)
    assert peak_of(problem, JointPlan(compute=((99, 0),))) is None


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"saved": ("e",)}, "no op of the forward pass 'e'"),
        ({"saved": ("d backward",)}, "no op of the forward pass 'd backward'"),
        ({"saved": (4,)}, "saved has op 4, but the forward pass has ops 0…3"),
        ({"recomputed": (-1,)}, "recomputed has op -1"),
        ({"saved": (2,), "nodes": ("a", "b")}, "saved has 2, but nodes are 0…1"),
        ({"saved": (0,), "regions": ((2, 1),)}, r"regions\[0\] begins at op 2, behind its end at op 1"),
        ({"saved": (0,), "regions": ((2, 3), (0, 2))}, "two regions both have op 2"),
        ({"saved": (0,), "backward_from": 8}, "backward_from is 8, but the ops are 0…7"),
        ({"saved": (0,), "backward_from": "zebra"}, "no op 'zebra'"),
        ({"saved": (0,), "backward_from": 0}, r"begins with op 0 \(a\), so there is no forward pass"),
    ],
)
def test_what_is_not_there_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        plan_of_policy(chain(), policy(**fields))


def test_a_policy_names_something() -> None:
    with pytest.raises(InvalidInput, match="both empty"):
        policy()
    with pytest.raises(InvalidInput, match="nodes is empty"):
        policy(saved=(0,), nodes=())


def test_where_the_backward_pass_begins() -> None:
    """By the problem where ops run again from a stage on only; by what is called backward; else it must be told."""
    asked = policy(recomputed=(2,), others="saved")
    assert again(plan_of_policy(chain(replays_from=5), asked)) == [(5, 2)]
    silent = chain()
    ops = tuple(JointOp(name=op.name.split()[0], time_us=1, output_bytes=1, inputs=op.inputs, comm=False)
                for op in silent.ops)  # fmt: skip
    unnamed = JointProblem(name="chain", budget_bytes=9, static_bytes=0, ops=ops, link=silent.link)
    with pytest.raises(InvalidInput, match="say in backward_from"):
        plan_of_policy(unnamed, asked)
