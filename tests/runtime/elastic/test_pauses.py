"""What was there before is not looked at again by collections, and is again afterwards."""

import gc
from collections.abc import Iterator

import pytest

from runtime.elastic.pauses import without_long_pauses


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    """As a program begins; what these tests' own run has frozen is so again afterwards."""
    theirs = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if theirs:
        gc.freeze()


def test_what_is_there_is_out_of_sight_until_the_end() -> None:
    before = len(gc.get_objects())
    with pytest.raises(KeyError), without_long_pauses():
        assert len(gc.get_objects()) < before / 10  # those that collections look at
        assert gc.get_freeze_count() > before / 2
        raise KeyError
    assert gc.get_freeze_count() == 0
    assert len(gc.get_objects()) > before / 2


def test_nothing_stays_frozen_where_something_was_before() -> None:
    """Python 3.12 begins with some objects frozen: they are no sign that a caller has done the same."""
    gc.freeze()
    with without_long_pauses():
        pass
    assert gc.get_freeze_count() == 0
