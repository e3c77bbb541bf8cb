"""What moves behind communication is valid, costs nothing there, and is what the joint planner answers with."""

import random

from msgspec.structs import replace

from solvers.check import check_plan
from solvers.ir import JointOp, JointProblem, Limits, Status, SwapLink
from solvers.ir.codec import plan_file
from solvers.joint import Joint
from solvers.joint.behind import behind
from solvers.joint.choice import Choice, keep_all
from solvers.joint.draft import Draft, kept_of, measure
from solvers.joint.given import Given, given_of
from tests.solvers.joint.brute_force import general


def op(time_us: int, output_bytes: int, *inputs: int, comm: bool = False) -> JointOp:
    return JointOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=inputs, comm=comm)


def chain(window_us: int = 7) -> JointProblem:
    """Ops 1 and 2 are read last, by the op behind two communications; the link is too slow for anything."""
    return JointProblem(
        name="hidden in two windows",
        budget_bytes=13,
        static_bytes=0,
        ops=(
            op(9, 1), op(4, 4, 0), op(5, 4, 1), op(9, 1, 2), op(9, 8, 3), op(9, 1, 4),
            op(window_us, 1, 5, comm=True), op(9, 1, 6), op(window_us, 1, 7, comm=True), op(9, 1, 8, 2),
        ),
        link=SwapLink(out_bytes_per_s=1_000, in_bytes_per_s=1_000, latency_us=0),
    )  # fmt: skip


def exposed(given: Given, choice: Choice) -> int:
    return sum(given.time[i] for t, run in enumerate(choice.again) if not given.graph.comm[t] for i in run)


def test_an_op_and_its_input_move_to_communications_of_their_own() -> None:
    given, choice = given_of(chain()), keep_all(given_of(chain()))
    choice.again[9] |= {1, 2}
    assert measure(given, Draft(choice.again)).objective_us == given.base_us + 9
    moved = next(behind(given, choice))
    assert (moved.again[6], moved.again[8], moved.again[9]) == ({1}, {2}, set())
    assert measure(given, Draft(moved.again)).objective_us == given.base_us
    assert choice.again[9] == {1, 2}  # what is given is not written to


def test_what_takes_longer_than_communication_stays_where_it_is() -> None:
    given = given_of(chain(4))
    choice = keep_all(given)
    choice.again[9] |= {1, 2}
    moved = list(behind(given, choice))
    assert all(2 in one.again[9] for one in moved)
    assert list(behind(given_of(replace(chain(), ops=chain().ops[:6])), keep_all(given))) == []


def test_the_planner_hides_what_it_can_and_its_plan_is_proven_best() -> None:
    solution = Joint(singles=False).solve(chain(), Limits(work=0.1))
    assert solution.objective == solution.base and solution.status is Status.OPTIMAL
    assert check_plan(chain(), plan_file(solution, "joint", None)).violations == ()


def test_random_choices_move_within_windows_and_show_no_more_time() -> None:
    moves = 0
    for seed in range(1, 1200, 2):
        given, source = given_of(general(seed)), random.Random(f"behind {seed}")
        choice = keep_all(given)
        for t in range(given.graph.replays_from, len(given)):
            if not given.graph.comm[t]:
                choice.again[t] |= {i for i in range(t) if given.graph.replay[i] and source.random() < 0.5}
        if kept_of(given, choice.again).fault is not None:
            continue
        for moved in behind(given, choice):
            assert exposed(given, moved) < exposed(given, choice), seed
            assert kept_of(given, moved.again).fault is None, seed
            moves += 1
    assert moves > 20
