"""The judge of planned runs sees what it is there for: wrong bits, wrong predictions, short memory, crude errors."""

from typing import Any

import pytest
import torch

from runtime.swap import SwapExecutor
from solvers.ir.errors import BayplanError
from tests.runtime.execute.planned import judging
from tests.runtime.execute.planned.counting import counted, page
from tests.runtime.execute.planned.judging import Run, judge, reference

RUN = Run("mlp-momentum", "greedy-swap", 0.3)


def test_a_run_that_keeps_its_word_has_swapped_within_its_budget(device: torch.device) -> None:
    verdict = judge(RUN)
    assert (verdict.judged, verdict.why) == ("kept", "")
    assert len(verdict.peaks) == judging.STEPS and max(verdict.peaks) <= verdict.budget_bytes
    assert all(counts.as_planned and counts.planned > 0 for counts in verdict.counts)
    assert "1 runs: 1 kept, 0 refused, 0 broken." in page([verdict])


def test_other_bits_are_seen(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    other = reference(RUN.program, 1)
    monkeypatch.setattr(judging, "reference", lambda name, seed: other)
    assert judge(RUN).why == "step 0: the loss differs"


def test_a_false_prediction_is_seen(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = judging._predicted
    monkeypatch.setattr(judging, "_predicted", lambda *given: predicted(*given) * 1001 // 1000)
    verdict = judge(RUN)
    assert verdict.judged == "broken" and "% from the predicted" in verdict.why


def test_less_memory_than_planned_is_refused_in_a_sentence_and_training_goes_on(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cramped(judging._Judged):
        def _planned(self, trained: Any) -> SwapExecutor:
            executor = super()._planned(trained)
            self.budget_bytes -= 1 << 20
            return executor

    monkeypatch.setattr(judging, "_Judged", Cramped)
    verdict = judge(RUN)
    assert verdict.judged == "refused" and "plan" in verdict.why, verdict.why
    assert not verdict.counts


ERRORS = [
    (BayplanError("too much: use less"), "refused"),
    (BayplanError("no\nsentence"), "broken"),
    (KeyError(3), "broken"),
]


@pytest.mark.parametrize(("error", "judged"), ERRORS)
def test_a_refusal_is_a_sentence_and_no_other_error(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, error: Exception, judged: str
) -> None:
    def run(self: SwapExecutor, step: Any) -> None:
        raise error

    monkeypatch.setattr(SwapExecutor, "run", run)
    verdict = judge(RUN)
    assert verdict.judged == judged, verdict.why
    assert counted([verdict])[verdict.judged] == 1
    error.__traceback__ = None  # it would hold what was on the device for as long as the parameters live
