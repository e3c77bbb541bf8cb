"""Random decisions of a joint problem, as drafts that hold by construction or nearly."""

import random
from itertools import pairwise

from solvers.ir import JointProblem
from solvers.joint.draft import Away, Draft, kept_of
from solvers.joint.given import Given, given_of


def random_draft(problem: JointProblem, seed: int) -> tuple[Given, Draft]:
    """Some recomputations, and some of the gaps that they leave swapped, in any order."""
    given, source = given_of(problem), random.Random(f"draft {seed}")
    count = len(given)
    share = source.choice([0.0, 0.1, 0.4])
    again = [{i for i in range(t) if source.random() < share} for t in range(count)]
    for t in range(count):  # what is computed again finds its inputs or computes them, too
        again[t] -= {i for i in again[t] if not given.graph.replay[i] or t < given.graph.replays_from}
    kept, away = kept_of(given, again), []
    for i, stages in enumerate(kept.touched):
        for first, last in pairwise(stages):
            if i not in kept.runs[last] and source.random() < 0.5:
                away.append(Away(i, source.randint(first, last - 1), 0))
                away[-1] = away[-1]._replace(in_at=source.randint(away[-1].out_after + 1, last))
    source.shuffle(away)
    return given, Draft(again, tuple(away))
