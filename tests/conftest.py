"""What all tests share: no deadlines on noisy machines, repeatable examples, one thread for torch."""

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
