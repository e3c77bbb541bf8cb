"""Changes of single decisions: what waits before it leaves, and communication that is repeated for what hides."""

import random

from solvers.ir import JointOp, JointProblem, Limits, SwapLink
from solvers.joint import Joint
from solvers.joint.choice import keep_all
from solvers.joint.given import Given, given_of
from solvers.joint.lanes import Lanes
from solvers.joint.moves import Moves
from solvers.joint.state import State

LINK = SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=1_000_000, latency_us=0)  # 1 us a byte


def _given(budget_bytes: int, *ops: JointOp) -> Given:
    return given_of(JointProblem(name="moves", budget_bytes=budget_bytes, static_bytes=0, ops=ops, link=LINK))


def _op(time_us: int, output_bytes: int, *inputs: int, comm: bool = False, replay: bool = True) -> JointOp:
    return JointOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=comm, replay=replay)


def _large_behind_small() -> Given:
    """The large output 1 has to be gone by stage 3, the small one, 0, by stage 4 only; nothing is computed again."""
    ops = (
        _op(1, 2, replay=False),
        _op(1, 6, replay=False),
        _op(1, 1, replay=False),
        _op(10, 7, 2, replay=False),
        _op(20, 3, 3, replay=False),
        _op(10, 1, 4, replay=False),
        _op(1, 1, 0, 1, 5, replay=False),
    )
    return _given(10, *ops)


def test_a_small_output_waits_until_a_large_one_has_gone() -> None:
    given = _large_behind_small()
    took = []
    for behind in (0, 2):
        state = State(given, keep_all(given))
        state.send(0, 0, behind)
        state.send(1, 1)
        lanes = Lanes(state)
        lanes.ticks()
        lanes.kept()
        took.append(lanes.ticks())
    assert took[1] == took[0] - 1  # the large one leaves when it is there, not 1 us later
    solution = Joint(singles=False).solve(given.problem, Limits(work=1.0))
    assert solution.plan is not None and solution.objective == solution.bound == given.whole_us(took[1])
    assert {(swap.op, swap.out_after) for swap in solution.plan.swap} == {(0, 2), (1, 1)}


def test_postponing_keeps_within_the_gap_and_is_taken_back() -> None:
    given, source = _large_behind_small(), random.Random(3)
    state = State(given, keep_all(given))
    state.send(0, 0)
    state.send(1, 1)
    state.begin()
    moves, seen = Moves(state, source), set()
    for _ in range(200):
        if moves.postpone(*source.choice(moves.gone)):
            seen.add((state.behind(0, 0), state.behind(1, 1)))
    assert all(0 <= first <= 4 and 1 <= other <= 4 for first, other in seen) and len(seen) > 8
    state.undo()
    assert not state.waits and set(state.away) == {(0, 0), (1, 1)}


class _Always(random.Random):
    """Draws in the middle: inputs that are gone are computed again, and what is there stays."""

    def random(self) -> float:
        return 0.5


def test_what_hides_gets_the_communication_that_it_reads_repeated_before() -> None:
    gathered = (_op(1, 1), _op(5, 4, 0, comm=True), _op(2, 6, 1), _op(9, 1, 2))
    later = (_op(3, 1, 3), _op(6, 1, 4, comm=True), _op(4, 1, 2, 5))
    given = _given(20, *gathered, *later)
    state = State(given, keep_all(given))
    assert not state.there(1, 5)  # nobody reads what was gathered behind stage 2
    assert Moves(state, _Always()).put(2, 5)
    assert [sorted(run) for run in state.again] == [[], [], [], [], [0, 1], [2], []]
