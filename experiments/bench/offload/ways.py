"""Everybody who races."""

from collections.abc import Sequence

from experiments.bench.offload import rivals, selective
from experiments.bench.offload.run import Way

SHARES = (0.75, 0.6, 0.45)
"""Budgets of sessions and executed plans, as shares of the plain run's peak of segments."""
MIDDLE = SHARES[1]
PLAIN = Way("plain")


def ways(shares: Sequence[float] = SHARES) -> list[Way]:
    """All of them, the plain run first, then sessions and plans by falling budget, rivals among them."""
    return [
        PLAIN,
        Way("full recomputation", wrap=selective.fully),
        Way("torch, keep attention", wrap=selective.keeping_attention),
        Way("torch, keep products", wrap=selective.keeping_products),
        *(Way(f"session, {share:.0%}", kind="session", share=share) for share in shares),
        *(Way(f"executed plan, {share:.0%}", kind="executed", share=share) for share in shares),
        Way(f"recomputed by heu, {MIDDLE:.0%}", kind="recomputed", share=MIDDLE, solver="heu"),
        *(Way(f"joint, {share:.0%}", kind="recomputed", share=share, solver="joint") for share in shares),
        Way("trl, streamed", around=rivals.trl),
        Way("torchtune, streamed", around=rivals.torchtune),
        Way("save_on_cpu", around=rivals.save_on_cpu),
    ]


def few() -> list[Way]:
    """The plain run, and ours at the middle budget: what another setting of the allocator is judged by."""
    return [
        way for way in ways() if way.name == PLAIN.name or (way.share == MIDDLE and way.kind in ("session", "executed"))
    ]
