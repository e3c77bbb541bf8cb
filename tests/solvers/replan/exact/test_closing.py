"""Loads that whole numbers of pipelines exclude: no plan keeps to them, and they are excluded where fractions are not."""

import pytest

from experiments.bench.deep import deep_cluster
from solvers.check.replan.judge import judge_replan
from solvers.ir import Limits, Status
from solvers.replan import ExactReplan
from solvers.replan.exact import transition
from solvers.replan.exact.closing import Closed, closed
from solvers.replan.exact.prices import Mixture, Pricing
from tests.solvers.replan.brute_force import optimum, random_problem, unlike_problem

LIMITS = Limits(time_s=60)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Closed]:
    """Nothing but whole numbers bounds transitions, of shallow clusters too; what they said of each load."""
    answers = list[Closed]()

    def unpriced(self: Pricing, known: list[tuple[tuple[int, ...], int]]) -> Mixture:
        self.pool |= dict.fromkeys(known)
        mixture, nodes, sent = self._solved()
        self._settle(nodes, sent)
        return mixture

    def noted(pricing: Pricing) -> Closed:
        answers.append(closed(pricing))
        return answers[-1]

    monkeypatch.setattr(Pricing, "excluded", unpriced)
    monkeypatch.setattr(transition, "closed", noted)
    monkeypatch.setattr(transition, "_SMALL", 0)
    monkeypatch.setattr(transition, "_SHALLOW", 0)
    monkeypatch.setattr(transition._Search, "_bound", lambda self, least: 0)
    return answers


def test_no_plan_is_better_than_what_whole_numbers_leave(said: list[Closed], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transition._Search, "_mixed", lambda *_: None)  # so that they are asked of every load
    for seed in range(60):
        for problem in (random_problem(seed), unlike_problem(seed)):
            answer, best = ExactReplan().solve(problem, LIMITS), optimum(problem)
            if best is not None and answer.bound is not None:
                assert answer.bound <= best, problem.name
    assert any(one.excluded for one in said), "they exclude something"
    assert any(one.splits for one in said), "they leave something"


def test_they_close_what_fractions_leave_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,913 nodes: fractions of pipelines count 1.00026 of the microbatches with a load that no whole ones keep to."""
    problem = deep_cluster(21006)
    answer = ExactReplan().solve(problem, LIMITS)
    assert answer.status is Status.OPTIMAL and answer.plan is not None
    assert judge_replan(problem, answer.plan).objective_us == answer.objective
    monkeypatch.setattr(transition, "closed", lambda pricing: Closed(False))
    assert ExactReplan().solve(problem, LIMITS).status is Status.FEASIBLE
