"""Random stages of which the full ones recompute: invented, for tests and for figures of this room only (README)."""

import numpy as np

from solvers.partition.stage_times import StageTimes, stage_times


def random_stage_times(seed: int, stages: int | None = None, layers: int | None = None) -> StageTimes:
    """Convex recomputation: the more of its activations a stage must drop, the dearer each further one.

    A layer takes 1,000 µs forward and 2,000 µs backward and holds 1 unit of activations a microbatch, min(P − p, ·) of
    which are in flight, 0.1 of them at least; static memory 1.2 units. The share d that does not fit costs
    d^1.3 · `recompute`, less what windows hide; embedding and output layer add to the first and the last stage.
    """
    source = np.random.default_rng(seed)
    stages = int(source.choice([4, 8, 16])) if stages is None else stages
    layers = int(source.choice([24, 32, 40, 48, 64, 80, 96])) if layers is None else layers
    memory = (source.uniform(0.15, 1.3) * stages + 1.2) * layers / stages
    recompute, hidden, extra = source.uniform(0.2, 0.4), source.uniform(0, 0.6), source.uniform(0, 4)
    count, flight = np.arange(layers + 1)[None, :], (stages - np.arange(stages))[:, None]
    free, whole, least = memory - 1.2 * count, 1.0 * count * flight, 0.1 * count * flight
    dropped = np.clip((whole - free) / np.maximum(whole - least, 1e-9), 0, 1)
    exposed = count * recompute * np.maximum(dropped**1.3 - hidden, 0)
    ends = np.zeros((stages, 1))
    ends[0] += 0.3 * extra
    ends[-1] += extra
    forward = count + ends / 3
    return stage_times(
        np.rint(1000 * forward).astype(np.int64),
        np.rint(2000 * forward).astype(np.int64),
        recompute_us=np.rint(3000 * exposed).astype(np.int64),
        fits=free >= least + 1,
    )
