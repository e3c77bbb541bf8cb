"""How failures on purpose are written, and that each happens once."""

import pytest

from runtime.elastic import parse_kills
from runtime.elastic.faults import PeerLost
from runtime.elastic.messages import Injection, Killed, Upward
from runtime.elastic.moments import Moments
from solvers.ir import InvalidInput


def test_words_are_injections_and_joins() -> None:
    injections, joins = parse_kills("3@5.backward, 6@8.forward:2.stop+return@10 fresh@14, 0@2")
    assert injections == (
        Injection(node=3, step=5, moment="backward"),
        Injection(node=6, step=8, moment="forward", how="stop", nth=2),
        Injection(node=0, step=2),
    )
    assert joins == {10: ["return"], 14: ["fresh"]}
    assert parse_kills("") == ((), {})


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("3", "cannot read the kill '3': write NODE@STEP.MOMENT"),
        ("3@x", "cannot read the kill"),
        ("3@5.backwards", "there is no moment 'backwards': did you mean 'backward'?"),
        ("leave@5", "cannot read the kill 'leave@5'"),
    ],
)
def test_other_words_are_refused(word: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_kills(word)
    assert str(caught.value).startswith(sentence)


def test_an_unheard_vote_happens_once_and_to_its_node_only() -> None:
    told: list[Upward] = []
    injection = Injection(node=2, step=4, moment="unheard", nth=2)
    mine, other = Moments(2, [injection], told.append), Moments(3, [injection], told.append)
    for moments in (mine, other):
        moments.at("unheard", 4)
        moments.at("unheard", 3)
    other.at("unheard", 4)
    assert told == []
    with pytest.raises(PeerLost):
        mine.at("unheard", 4)
    mine.at("unheard", 4)
    assert told == [Killed(node=2, moment="unheard", how="kill", step=4)]
