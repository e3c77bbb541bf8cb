"""What transformers imports stays anyway, and would make each garbage collection slow."""

import gc

import tests.runtime.execute.planned.programs

__all__ = ["tests"]
gc.freeze()
