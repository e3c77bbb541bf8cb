"""What policies promise, where times tell of sizes first: launches, and delays as far as any were measured."""

from collections.abc import Sequence

from runtime.swap.report import PolicyResult

LAUNCHES = 0.01
"""Where launching copies takes more of every iteration than that, policies of few of them are tried, too."""
SPREAD = 0.2
"""By this share of how far sizes spread a policy with residents counts more swaps: small iterations spare it less.

Fitted to one row of `tests/runtime/swap/sizes`: without it `hf-trainer` takes 1.040 times its plain step, not 1.031.
"""


def launches_tell(results: Sequence[PolicyResult], launch_us: float) -> bool:
    """Whether launching the copies of each policy that was measured takes `LAUNCHES` of an iteration."""
    ran = [result for result in results if result.duration_us is not None]
    return bool(ran) and all(2 * launch_us * one.swaps >= LAUNCHES * (one.duration_us or 0) for one in ran)


def promised(
    result: PolicyResult, stalled: float, launch_us: float, spread: float, base_us: int | None = None
) -> tuple[float, float]:
    """By which share a policy promised to take longer than an iteration without swaps, to a percent; then swaps.

    Of its delays a share of `stalled` counts. Each swap costs the host two launches, of which Eq. 1 knows nothing.
    Sizes `spread` by that share of the largest. All is told of `base_us` where policies are compared, as each knows an
    iteration's time by what ran before it; else of its own.
    """
    swaps = result.swaps if result.mean_swaps is None else result.mean_swaps
    swaps *= 1 + (SPREAD * spread if result.choice.residents else 0)
    base_us = base_us or result.base_us or 1
    return round((stalled * _delay_us(result) + 2 * swaps * launch_us) / base_us, 2), swaps


def stalled(results: Sequence[PolicyResult], launch_us: float) -> float:
    """Which share of the delays that policies promised was measured: where launches take longest, waiting is free.

    A device that waits for a copy lets the host run ahead, and catches up. What sizes change of the times counts as
    delay, so that 1 is the answer where little is known.
    """
    took, delays_us = list[float](), 0.0
    for result in results:
        counts = result.counts
        if counts is not None and result.duration_us is not None and result.swaps:
            took.append(result.duration_us - launch_us * (counts.swapped_out + counts.swapped_in))
            delays_us += _delay_us(result) * min(counts.swapped_out / result.swaps, 1.0)
    least = min(took, default=0.0)
    return min(sum(time - least for time in took) / delays_us, 1.0) if delays_us > 0 else 1.0


def _delay_us(result: PolicyResult) -> int:
    return (result.objective_us or 0) - (result.base_us or 0)
