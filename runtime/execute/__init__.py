"""Walks a `Schedule` on a real training step, and says what it did."""
