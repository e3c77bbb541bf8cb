"""Everybody who races."""

from collections.abc import Sequence

from experiments.bench.offload import rivals, selective
from experiments.bench.offload.model import RaceShape
from experiments.bench.offload.run import Way

SHARES = RaceShape().shares
PLAIN = Way("plain")
OURS = ("session", "executed")


def ways(shares: Sequence[float] = SHARES) -> list[Way]:
    """All of them for these budgets, the plain run first, then what matters most: where time is short the last miss."""
    largest, *tighter = shares
    middle = shares[min(1, len(shares) - 1)]
    return [
        PLAIN,
        *(Way(f"joint, {share:.0%}", kind="recomputed", share=share, solver="joint") for share in shares),
        Way(f"recomputed by heu, {middle:.0%}", kind="recomputed", share=middle, solver="heu"),
        Way("torch, keep products", wrap=selective.keeping_products),
        Way("full recomputation", wrap=selective.fully),
        *_swapped(largest),
        Way("trl, streamed", around=rivals.trl),
        *(way for share in tighter for way in _swapped(share)),
        Way("torch, keep attention", wrap=selective.keeping_attention),
        Way("torchtune, streamed", around=rivals.torchtune),
        Way("save_on_cpu", around=rivals.save_on_cpu),
    ]


def _swapped(share: float) -> tuple[Way, ...]:
    """A session and an executed plan within this share of the peak."""
    return (
        Way(f"session, {share:.0%}", kind="session", share=share),
        Way(f"executed plan, {share:.0%}", kind="executed", share=share),
    )


def few(shares: Sequence[float] = SHARES) -> list[Way]:
    """The plain run, and ours at the middle budget: what another setting of the allocator is judged by."""
    middle = shares[min(1, len(shares) - 1)]
    return [
        way
        for way in ways(shares)
        if way.name == PLAIN.name or (way.share == middle and (way.kind in OURS or way.solver == "joint"))
    ]
