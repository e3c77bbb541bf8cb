"""The moments that the relaxation of a single moment is tried at."""

import numpy as np

from solvers.joint.choice import keep_all
from solvers.joint.draft import kept_of
from solvers.joint.given import Given
from solvers.joint.greedy import hardest

MOMENTS = 12
"""Moments looked at: the fullest stage, and the fullest of as many stretches of the step."""


def moments(given: Given) -> list[int]:
    """The hardest stages of the step with everything kept: of all, and of equal stretches; the hardest first."""
    peaks = kept_of(given, keep_all(given).again).peaks
    order = [t for t in hardest(given, peaks) if t < len(given) - 1 and peaks[t] > given.budget]
    place = {t: number for number, t in enumerate(order)}
    parts = np.array_split(np.array(sorted(order), dtype=int), MOMENTS)
    chosen = {min(part.tolist(), key=place.__getitem__) for part in parts if len(part)}
    fullest = sorted(order, key=lambda t: (-peaks[t], t))[:2]
    return list(dict.fromkeys([*order[:3], *fullest, *sorted(chosen, key=place.__getitem__)]))
