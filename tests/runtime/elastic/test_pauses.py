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


def test_what_others_have_frozen_stays_so() -> None:
    gc.freeze()
    try:
        with without_long_pauses():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
