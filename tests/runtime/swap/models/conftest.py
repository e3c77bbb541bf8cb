"""What transformers imports stays anyway, and would make each test's garbage collection slow."""

import gc

import tests.runtime.swap.models.zoo

__all__ = ["tests"]
gc.freeze()
