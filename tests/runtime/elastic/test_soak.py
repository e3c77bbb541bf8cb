"""Many failures at random moments: no hang beyond the timeout, nothing lost or doubled, every bit as without them."""

import random
from collections import Counter
from typing import get_args

import pytest

from runtime.elastic import Options, Outcome, parse_kills, train
from runtime.elastic.messages import Moment
from tests.runtime.elastic.jobs import costs
from tests.runtime.elastic.test_train import JOB, same

NODES, EVERY, TIMEOUT_S = 6, 5, 20.0
MOMENTS = get_args(Moment)


def script(seed: int, count: int) -> str:
    """`count` failures, one every few steps; for each process that ends, a fresh one comes two steps later.

    Victims are told by how many have come before: the processes that are there are always the last ones.
    """
    rng = random.Random(seed)
    there, words, following = list(range(NODES)), [], NODES
    for number in range(count):
        step = 2 + EVERY * number
        moment = MOMENTS[number % len(MOMENTS)]
        victim = there[rng.randrange(len(there))]
        if moment in ("regroup", "transfer"):  # within the recovery from another one's failure
            other = rng.choice([node for node in there if node != victim])
            words.append(f"{other}@{step}.forward")
            there.remove(other)
            there.append(following)
            following += 1
            words.append(f"fresh@{step + 1}")
        words.append(f"{victim}@{step}.{moment}:{rng.randint(1, 2) if moment in ('forward', 'backward') else 1}")
        if moment != "unheard":
            there.remove(victim)
            there.append(following)
            following += 1
            words.append(f"fresh@{step + 1}")
    return ", ".join(words)


def soak(seed: int, count: int) -> tuple[Outcome, Counter[str]]:
    steps = 2 + EVERY * (count + 1)
    injections, joins = parse_kills(script(seed, count))
    options = Options(
        canonical=True, injections=injections, joins=joins, hang_s=TIMEOUT_S, timeout_s=TIMEOUT_S, problem=costs(NODES)
    )
    outcome = train(JOB, nodes=NODES, steps=steps, pipeline=2, options=options)
    same(outcome, steps)
    assert not [event for event in outcome.events if event["event"] == "hung"]
    for recovery in outcome.recoveries:
        assert (recovery.total_us or 0) < TIMEOUT_S * 1e6, recovery
    return outcome, Counter(str(event["moment"]) for event in outcome.events if event["event"] == "injected")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_hundreds_of_failures(seed: int) -> None:
    _, moments = soak(seed, 20)
    assert moments.total() >= 20
    assert set(moments) >= {"forward", "backward", "send", "recv", "all-reduce", "vote", "update", "unheard"}
