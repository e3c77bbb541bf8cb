"""Many failures at random moments: no hang beyond the timeout, nothing lost or doubled, every bit as without them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.elastic import Alone, Outcome, parse_kills
from tests.runtime.elastic.soak import EVERY, MOMENTS, ROLES, Counts, counts_of, faults, run, script, stops_some, table

SEEDS, FAILURES = range(20), 20
SURE = {(moment, role) for moment in MOMENTS for role in ("first", "inner", "last") if moment != "transfer"}
"""Who does what when it dies, all of which must have happened; who takes part in a transfer is the plan's to say."""


@pytest.fixture(scope="module")
def happened() -> Counts:
    """The failures of all seeds so far."""
    return Counter()


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_hundreds_of_failures(seed: int, happened: Counts, tmp_path: Path) -> None:
    outcome, alone = run(seed, FAILURES, tmp_path)
    assert faults(outcome, alone) == []
    happened += counts_of(outcome)
    if seed == SEEDS[-1]:
        print(table(happened))
        assert happened.total() >= 400
        assert not SURE - happened.keys(), f"never: {sorted(SURE - happened.keys())}"
        assert "transfer" in {moment for moment, _ in happened}


@pytest.mark.parametrize("seed", SEEDS)
def test_each_script_has_every_moment_and_keeps_as_many_processes(seed: int) -> None:
    injections, joins = parse_kills(script(seed, FAILURES))
    assert {one.moment for one in injections} == set(MOMENTS)
    gone = [one.node for one in injections if one.moment != "unheard"]
    assert len(gone) == len(set(gone)) == sum(map(len, joins.values()))
    assert {one.how for one in injections} == ({"kill", "stop"} if stops_some(seed) else {"kill"})
    assert max(one.step for one in injections) == 2 + EVERY * (FAILURES - 1)


def test_the_table_counts_moments_and_victims() -> None:
    lines = table(Counter({("forward", "first"): 2, ("update", "spare"): 1})).splitlines()
    assert lines[0] == f"| moment | {' | '.join(ROLES)} | all |"
    assert lines[2] == "| forward | 2 | 0 | 0 | 0 | 0 | 2 |"
    assert lines[-1] == "| all | 2 | 0 | 0 | 0 | 1 | 3 |"


def test_who_is_silent_must_have_been_stopped() -> None:
    alone = Alone((1.0,), ("a",))
    outcome = Outcome((1.0,), ("a",), True, (2,), (), (10,), ())
    hung = {"event": "hung", "node": 3}
    stopped = {"event": "injected", "node": 3, "how": "stop"}
    assert faults(outcome, alone) == faults(replace(outcome, events=(stopped, hung)), alone) == []
    assert faults(replace(outcome, events=(hung,)), alone) == [f"silent: {hung}"]
    assert faults(replace(outcome, events=(stopped,)), alone) == ["stopped, and not noticed: 3"]
    assert len(faults(outcome, Alone((2.0,), ("b",)))) == 2
