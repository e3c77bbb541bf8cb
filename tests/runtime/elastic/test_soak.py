"""Many failures at random moments: no hang beyond the timeout, nothing lost or doubled, every bit as without them."""

from collections import Counter
from pathlib import Path

import pytest

from runtime.elastic import parse_kills
from tests.runtime.elastic.soak import EVERY, MOMENTS, ROLES, Counts, counts_of, faults, run, script, table

SEEDS, FAILURES = range(10), 20


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
        assert happened.total() >= 200
        assert {moment for moment, _ in happened} == set(MOMENTS)
        assert {role for _, role in happened} >= {"first", "last", "inner"}


@pytest.mark.parametrize("seed", SEEDS)
def test_each_script_has_every_moment_and_keeps_as_many_processes(seed: int) -> None:
    injections, joins = parse_kills(script(seed, FAILURES))
    assert {one.moment for one in injections} == set(MOMENTS)
    gone = [one.node for one in injections if one.moment != "unheard"]
    assert len(gone) == len(set(gone)) == sum(map(len, joins.values()))
    assert max(one.step for one in injections) == 2 + EVERY * (FAILURES - 1)


def test_the_table_counts_moments_and_victims() -> None:
    lines = table(Counter({("forward", "first"): 2, ("update", "spare"): 1})).splitlines()
    assert lines[0] == f"| moment | {' | '.join(ROLES)} | all |"
    assert lines[2] == "| forward | 2 | 0 | 0 | 0 | 0 | 2 |"
    assert lines[-1] == "| all | 2 | 0 | 0 | 0 | 1 | 3 |"
