"""Joint problems whose step or memory no file holds exactly are refused, so that waits have a limit (README, (M))."""

from typing import Any

import pytest
from msgspec.structs import replace

from solvers.check.joint.moment import MOST
from solvers.ir import InvalidInput, JointOp, JointProblem, SwapLink
from solvers.ir.codec import problem_from_raw, problem_to_raw
from solvers.ir.fields import LARGEST


def problem(time_us: int = 1, output_bytes: int = 1, rate: int = 10**6, latency_us: int = 0) -> JointProblem:
    link = SwapLink(
        out_bytes_per_s=rate, in_bytes_per_s=rate, latency_us=latency_us, latency_ns=1000 * latency_us or None
    )
    op = JointOp(name="op", time_us=time_us, output_bytes=output_bytes, inputs=(), comm=False)
    return JointProblem(
        name="huge", budget_bytes=LARGEST, static_bytes=0, ops=(op, replace(op, inputs=(0,))), link=link
    )


@pytest.mark.parametrize(
    "change",
    [
        {"time_us": LARGEST // 2},
        {"output_bytes": LARGEST // 4, "rate": 1},
        {"latency_us": LARGEST // 4},
        {"output_bytes": LARGEST // 2, "rate": 10**12},
    ],
)
def test_amounts_that_no_file_holds_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=f"beyond the {LARGEST} that files hold: correct"):
        problem(**change)


def test_the_largest_step_is_below_the_limit_of_waits() -> None:
    """3 stages' worth of each op: its time, its way out and back; in nanoseconds where the link counts those."""
    assert problem(time_us=LARGEST // 3 - 2).ops[0].time_us == LARGEST // 3 - 2
    with pytest.raises(InvalidInput):
        problem(time_us=LARGEST // 3 - 1)
    assert LARGEST * problem(latency_us=1).link.ticks < MOST


@pytest.mark.parametrize("change", [{"host_waits": True}, {"read_us": 1}, {"sent_us": 1}, {"sync": "device"}])
def test_no_host_waits_for_communication(change: dict[str, Any]) -> None:
    talking = replace(problem().ops[0], comm=True, **change)
    with pytest.raises(InvalidInput, match=r"ops\[1\] is communication, for which no host waits: drop its host_waits"):
        replace(problem(), ops=(problem().ops[0], talking))


def test_another_wait_is_told_which_there_are() -> None:
    odd = replace(problem().ops[0], sync="event")
    with pytest.raises(InvalidInput, match=r"ops\[0\]\.sync is 'event': choose of device, stream, or leave it out"):
        replace(problem(), ops=(odd, problem().ops[1]))
    raw = problem_to_raw(problem())
    raw["ops"][0]["sync"] = "event"
    with pytest.raises(InvalidInput, match=r'ops\[0\]\.sync is "event": choose of device, stream'):
        problem_from_raw(raw)
