"""Rows of what a recomputation needs while it runs: only what a solution breaks is added, and it proves more."""

from solvers.engines import solve
from solvers.ir import JointOp, JointProblem, Limits, SwapLink
from solvers.joint import crowded
from solvers.joint.given import given_of
from solvers.joint.stretch import Stretch


def op(time_us: int, output_bytes: int, *inputs: int) -> JointOp:
    return JointOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=False)


def problem(budget: int) -> JointProblem:
    """Op 4 reads what op 1 made of op 0, beside op 3; op 2 leaves no room for them. To return takes 80 µs."""
    link = SwapLink(out_bytes_per_s=100_000, in_bytes_per_s=100_000, latency_us=0)
    ops = (op(1, 4), op(1, 8, 0), op(9, 13, 1), op(1, 6, 2), op(1, 1, 1, 3))
    return JointProblem(name="crowded", budget_bytes=budget, static_bytes=0, ops=ops, link=link)


def stretch(budget: int) -> Stretch:
    return Stretch(given_of(problem(budget)), 2, 4, {0, 1, 2, 3, 4})


def test_op_1_cannot_run_again_beside_op_3() -> None:
    """Op 0, op 1 and op 3 take 18 bytes together; op 3 itself could not be made again beside them either."""
    tight = stretch(21)
    first = solve(tight.model(), Limits(), engine="highs")
    assert first.x is not None
    names = {row.key for row in tight.rows}
    added = crowded.broken(tight, {"again/1/4": 1.0, "again/0/4": 1.0}, names)
    assert all(row.key not in names for row in added)
    roomy = crowded.broken(stretch(60), {"again/1/4": 1.0, "again/0/4": 1.0}, names)
    assert roomy == []


def test_rows_are_added_until_none_is_broken_or_two_times() -> None:
    tight = stretch(21)
    before = len(tight.rows)
    found = crowded.proof(tight, Limits(), "highs")
    assert found is not None and found.late >= 0
    known = {row.key for row in tight.rows}
    assert len(known) == len(tight.rows) >= before
