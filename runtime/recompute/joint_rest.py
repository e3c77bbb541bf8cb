"""What follows a pass, in a joint problem: how far ahead the host must be for it where the pass ends."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from runtime.recompute.graph import Step
from runtime.recompute.joint_launches import parts_of
from runtime.recompute.joint_problem import small_parts
from runtime.recompute.layer import Layer
from solvers.ir.joint import JointOp, JointProblem


def with_rest(problem: JointProblem, step: Step, layers: Sequence[Layer]) -> JointProblem:
    """The problem of a pass whose end is, where the host would hold up what follows, later by so much.

    Launching what a plan does takes the host's lead, for which the rest of the step may pay.
    """
    last = held_up(problem.ops[-1], owed_us(step, layers, small_parts(step, layers)))
    return replace(problem, ops=(*problem.ops[:-1], last))


def owed_us(step: Step, layers: Sequence[Layer], free: Collection[int]) -> int:
    """How far ahead the host must be where the pass ends, or what follows waits for it: what it then has yet to launch
    beyond what the device has to do. 0 where the device does not tell.

    Where the host waits behind the pass, or in the next one, that counts until then, less what it is ahead beside the
    ops of this one. Where it never waits that is all that a step launches, of which these ops have their part.
    """
    told = [layer.launches for layer in layers if layer.launches is not None]
    if len(told) < len(layers):
        return 0
    parts, ahead_ns = parts_of(step, layers, told, free)
    rest = told[0].rest
    launched_ns = ahead_ns if rest.host_waits else sum(one.host_ns for one in parts)
    return max(0, round((rest.end_ns - rest.device_ns - launched_ns) / 1000))


def held_up(last: JointOp, us: int) -> JointOp:
    """The last op of a pass, ended once nothing but the device holds up what follows: the host is so far ahead.

    That comes in place of its tail, where this is shorter. Where the host waits for the op, it is not ahead anyway.
    """
    if last.host_waits or last.sync or last.read_us or last.sent_us or us <= last.after_launch_us:
        return last
    return replace(last, launch_us=last.launch_us + us - last.after_launch_us)
