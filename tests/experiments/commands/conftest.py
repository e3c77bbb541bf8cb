import pytest

from solvers.planner import SOLVERS
from tests.experiments.commands.fakes import FAKES


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The misbehaving solvers, for one test."""
    for name, entry in FAKES.items():
        monkeypatch.setitem(SOLVERS, name, entry)
