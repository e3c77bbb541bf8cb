"""What a step under policies will take and hold, by a measured step and the tape's rules; no program runs.

`runtime.recompute.footprint` walks through the measured step's events: what it says runs again is added up here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.recompute.step_log import StepLog
from runtime.recompute.course import Ran
from runtime.recompute.policy import BlockPolicy


@dataclass(frozen=True)
class Prediction:
    """Virtual microseconds and bytes of one step.

    `exposed_us` is what the step takes longer than one that stores everything: operators that run when autograd asks,
    of which `late_us` were planned for windows that their block does not have, and what windows are too short for.
    """

    step_us: float
    peak_bytes: int
    exposed_us: float
    hidden_us: float
    late_us: float


def predict(log: StepLog, policies: Sequence[BlockPolicy]) -> Prediction:
    """The step under these policies, one for each block."""
    walked = log.footprint.walk(policies)
    exposed = hidden = late = 0.0
    for number, (call, ran) in enumerate(zip(log.footprint.calls, walked.ran, strict=True)):
        shown, beside, planned = _times(log, number, policies[call.block], ran)
        exposed, hidden, late = exposed + shown, hidden + beside, late + planned
    return Prediction(log.step_us + exposed, walked.peak_bytes, exposed, hidden, late)


def _times(log: StepLog, number: int, policy: BlockPolicy, ran: Ran) -> tuple[float, float, float]:
    """What one call has exposed, hidden, and planned for windows but exposed."""
    times, waits = log.times_us[number], log.footprint.waits[number]
    ahead = {node for nodes in (*policy.in_forward.values(), *policy.in_backward.values()) for node in nodes}
    exposed = sum(times[node] for node in ran.on_demand)
    late = sum(times[node] for node in ran.on_demand if node in ahead)
    hidden = 0.0
    for phase, place, nodes in ran.ahead:
        time, wait = sum(times[node] for node in nodes), log.waits_us[waits[phase, place]]
        hidden += min(time, wait)
        exposed += max(0.0, time - wait)
    return exposed, hidden, late
