"""Training with a tape is training: everything that it leaves behind is the same, whatever is stored."""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from runtime.device import use_sim
from tests.runtime.recompute.programs import PROGRAMS
from tests.runtime.recompute.regions import EVERYTHING, NOTHING, StorePolicy, difference, keep, trained

pytestmark = pytest.mark.usefixtures("plain_sim")
DEVICES = ["cpu", "sim"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_everything_that_training_leaves_behind_is_equal(name: str, device: str) -> None:
    use_sim(races="raise")
    place = torch.device(device) if device == "cpu" else torch.device("sim", 0)
    plain = trained(PROGRAMS[name], place, None)
    assert difference(plain, trained(PROGRAMS[name], place, None)) is None
    whole = trained(PROGRAMS[name], place, EVERYTHING)
    assert difference(plain, whole) is None
    assert whole.replayed == 0
    nothing = trained(PROGRAMS[name], place, NOTHING)
    assert difference(plain, nothing) is None
    assert nothing.names == whole.names
    every = keep(set(range(0, len(whole.names), 2)), len(whole.names))
    assert difference(plain, trained(PROGRAMS[name], place, every)) is None


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=60)
def test_whatever_is_stored(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(PROGRAMS)))
    place = torch.device("cpu")
    plain = trained(PROGRAMS[name], place, EVERYTHING)
    store = data.draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=len(plain.names), max_size=len(plain.names)))
    assert difference(plain, trained(PROGRAMS[name], place, StorePolicy(store, others=False))) is None


def test_a_stored_result_that_is_written_later_runs_again_from_what_cannot() -> None:
    """Found by the test above: dropout's noise, stored, is scaled in place; batch norm before it cannot run again."""
    place = torch.device("cpu")
    store = StorePolicy([2 if index == 12 else 0 for index in range(20)], others=False)
    plain = trained(PROGRAMS["convolutions"], place, None)
    assert difference(plain, trained(PROGRAMS["convolutions"], place, store)) is None
