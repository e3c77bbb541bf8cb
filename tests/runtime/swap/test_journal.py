"""The lines of the logger `bayplan.swap`."""

import logging

import pytest

from runtime.swap.journal import Remarks, log_chosen, log_fallback, log_policy, log_stage
from runtime.swap.stages import Stage, StageMachine


def test_a_run_reads_as_a_story(caplog: pytest.LogCaptureFixture) -> None:
    machine = StageMachine()
    with caplog.at_level(logging.INFO, "bayplan.swap"):
        for iteration, sequence in enumerate([[1, 2, 3]] * 4 + [[1, 2, 3, 3]], 1):
            before = machine.stage
            log_stage(iteration, before, machine.advance(sequence), machine.last)
        log_policy(7, 2, 5, 31, 4096)
        log_chosen(8, 2, 1234.5)
        log_fallback(9, "policy 3 does not fit the budget: passive swaps answer")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "iteration 3: WarmUp -> GenPolicy (length changed by 0.0%, cosine 1.0000)"),
        ("INFO", "iteration 5: GenPolicy -> WarmUp (length changed by 33.3%, cosine 0.9428)"),
        ("INFO", "iteration 7: policy 2 of 5 swaps 31 tensors, 4096 bytes"),
        ("INFO", "iteration 8: policy 2 is kept, 1234 us an iteration"),
        ("WARNING", "iteration 9: policy 3 does not fit the budget: passive swaps answer"),
    ]


def test_it_is_silent_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    log_stage(3, Stage.WARM_UP, Stage.GEN_POLICY)
    log_policy(4, 1, 5, 3, 100)
    assert capsys.readouterr() == ("", "")


def test_of_remarks_that_differ_in_numbers_only_the_first_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    remarks = Remarks()
    with caplog.at_level(logging.INFO, "bayplan.swap"):
        remarks.add(1, "a policy needs 5.00 KiB", expected=False)
        remarks.add(2, "a policy needs 6.00 MiB", expected=False)
        remarks.add(3, None, expected=False)
        remarks.add(4, "nothing is swapped", expected=True)
    assert remarks.sentences == ["a policy needs 5.00 KiB", "nothing is swapped"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
