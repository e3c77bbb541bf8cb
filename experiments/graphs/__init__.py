"""Whole graphs of operators by name, the solvers of `recompute-graph` raced on them, and the pages that show it."""
