"""What tests of planned training share."""

from functools import partial

import pytest

from runtime.recompute import plan
from tests.runtime.recompute import training


@pytest.fixture
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solvers stop by deterministic work, so much as the test's module says: before their plans are the best there are.

    Else they would have seconds, which buy less on a busy machine.
    """
    monkeypatch.setattr(training, "plan", partial(plan, limits=request.module.QUICK))
