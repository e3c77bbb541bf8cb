"""What all tests share: no deadlines on noisy machines, repeatable examples, one thread for torch, long files first."""

import os

import hypothesis
import pytest

# A shared machine is slower at times, which is no failure; in CI a random example would fail the next change instead.
hypothesis.settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Sums in parallel come in another order: bit-identity is a promise about one thread."""
    import torch

    torch.set_num_threads(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where workers share the tests, files with a slow one are begun first: begun last, one would keep all waiting."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
        items.sort(key=lambda item: item.path not in slow)
