"""The heuristics beside the search: the best of them, and a dear transition where one beats the unproven search."""

import msgspec

from solvers.check.replan.judge import judge_replan
from solvers.ir import Limits
from solvers.replan import Algorithm1, ExactReplan, Oobleck, Symmetric
from solvers.replan.exact.others import MOST_NODES_TIMES_LAYERS, best_of_others
from solvers.replan.instances import INSTANCES, Model


def test_the_best_of_the_three() -> None:
    for make in INSTANCES.values():
        problem = make()
        found = best_of_others(problem, Limits())
        assert found is not None and found.plan is not None
        least = min(
            answer.objective
            for answer in (solver.solve(problem, Limits()) for solver in (Algorithm1(), Oobleck(), Symmetric()))
            if answer.objective is not None
        )
        assert found.objective == least
        assert judge_replan(problem, found.plan).objective_us == least


def test_only_what_is_below_the_limit_is_of_interest() -> None:
    for make in INSTANCES.values():
        problem = make()
        found = best_of_others(problem, Limits())
        assert found is not None and found.objective is not None
        assert best_of_others(problem, Limits(), below_us=found.objective) is None
        again = best_of_others(problem, Limits(), below_us=found.objective + 1)
        assert again is not None and (again.objective, again.plan) == (found.objective, found.plan)


def test_a_dear_transition() -> None:
    """Three pipelines of two stages lost two nodes, ten seconds before the next failure: Oobleck moves fewer layers."""
    problem = Model(layers=24, vocab=1).after("dear", 2, 3, 6, (1, 4))
    problem = msgspec.structs.replace(problem, nodes=7, restart_us=0, expected_interval_us=10**7)
    oobleck = Oobleck().solve(problem, Limits()).objective
    exact = ExactReplan().solve(problem, Limits())
    assert oobleck is not None and exact.objective is not None
    assert exact.objective <= oobleck


def test_nobody_is_asked_who_cannot_answer_soon_or_at_all() -> None:
    problem = msgspec.structs.replace(
        INSTANCES["replan-2048"](),
        current=None, restart_us=None, bytes_per_s=None, expected_interval_us=None, data_parallel=None,
        nodes=1 + MOST_NODES_TIMES_LAYERS // 80,
    )  # fmt: skip
    assert best_of_others(problem, Limits()) is None
