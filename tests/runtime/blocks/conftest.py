"""The same simulated accelerator as for the profiles of memory."""

from tests.runtime.profile.memory.conftest import sim

__all__ = ["sim"]
