"""What sessions and planned runs do with their budgets on segments: the harness says yes and no, and how far we are."""

import pytest

from runtime.device import use_sim
from runtime.device.native import why_missing
from tests.runtime.swap.segments.programs import PROGRAMS
from tests.runtime.swap.segments.trials import TECHNIQUES, Technique, attempt, plain, table, trials

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason=str(why_missing("runtime._sim")))
FEW_SEGMENTS = "small budgets are few segments"


@pytest.mark.soak
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_a_budget_with_room_for_all_segments_is_kept(technique: Technique) -> None:
    without = plain("relu", expandable=False)
    trial = attempt("relu", technique, 2.0, expandable=False, without=without)
    assert trial.kept, table([trial])
    assert trial.reserved_bytes >= without.allocated_bytes > 0
    use_sim()


@pytest.mark.parametrize(("fraction", "expandable"), [(0.6, False), pytest.param(0.6, True, marks=pytest.mark.soak)])
def test_a_session_keeps_its_budget_on_segments(fraction: float, expandable: bool) -> None:
    """Where activations are most of the memory; policies leave what segments need, as a replay tells."""
    trial = attempt("thin", "session", fraction, expandable, plain("thin", expandable))
    use_sim()
    assert trial.kept, table([trial])


def test_an_operator_that_was_given_something_does_not_end_the_training_when_it_asks_for_the_rest() -> None:
    """A batch norm's backward pass takes two blocks; where the first one lies nobody sees before it ends."""
    trial = attempt("resnet", "session", 0.45, expandable=False, without=plain("resnet", expandable=False))
    use_sim()
    assert trial.kept and trial.ooms == 0, table([trial])


@pytest.mark.soak
@pytest.mark.parametrize("expandable", [False, True])
def test_a_planned_run_keeps_its_budget_on_segments(expandable: bool) -> None:
    trial = attempt("thin", "plan", 0.75, expandable, plain("thin", expandable))
    use_sim()
    assert trial.kept, table([trial])


@pytest.mark.soak
@pytest.mark.xfail(strict=True, reason=FEW_SEGMENTS)
def test_every_budget_of_all_programs_is_kept_in_sessions() -> None:
    rows = list(trials(PROGRAMS, ["session"]))
    use_sim()
    print(table(rows))
    assert len(rows) == len(PROGRAMS) * 2 * 3 and all(row.kept for row in rows)
