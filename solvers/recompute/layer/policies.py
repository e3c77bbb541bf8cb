"""Policies that need no search: keep everything, or recompute on the critical path what is not stored."""

from collections.abc import Iterable

from solvers.recompute.layer.front import Policy
from solvers.recompute.layer.layer import Layer


def keep_all(layer: Layer) -> Policy:
    """Every needed output stored, nothing recomputed: no policy is faster."""
    return Policy(tuple(i for i in layer.useful if layer.ops[i].needed), ())


def on_critical_path(layer: Layer, stored: Iterable[int] = ()) -> Policy:
    """These outputs stored; of the others those recomputed on the critical path that a backward op depends on."""
    kept = set(stored)
    again: set[int] = set()
    for i in reversed(layer.useful):
        reached = layer.ops[i].needed or any(reader in again for reader in layer.readers[i])
        if reached and i not in kept:
            again.add(i)
    used = {i for i in kept if layer.ops[i].needed or again.intersection(layer.readers[i])}
    return Policy(tuple(sorted(used)), tuple((i, layer.critical) for i in sorted(again)))


def everything_again(layer: Layer) -> Policy:
    """Nothing stored, every op of the layer run again on the critical path, needed or not."""
    return Policy((), tuple((i, layer.critical) for i in range(len(layer.ops))))
