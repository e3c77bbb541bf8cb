"""What launching parts of a step costs, one after the other."""

from collections.abc import Iterable
from functools import reduce

from runtime.profile.launches import Measured

NOTHING = Measured(0, 0, 0, 0)


def joined(parts: Iterable[Measured]) -> Measured:
    """One after the other."""
    return reduce(then, parts, NOTHING)


def then(first: Measured, last: Measured) -> Measured:
    """One behind the other: where the host waited for the first, it is known how far ahead it is at its end."""
    read_ns, sent_ns = first.read_ns + last.read_ns, last.sent_ns
    if last.host_waits:
        read_ns += first.sent_ns
    else:
        sent_ns += first.sent_ns
    if first.host_waits:
        ran_ns = max(last.device_ns, last.end_ns - (first.end_ns - first.host_ns)) if last.end_ns else 0
        device_ns, end_ns = first.device_ns + ran_ns, first.end_ns + ran_ns
    else:
        device_ns = first.device_ns + last.device_ns
        end_ns = max(first.end_ns + last.device_ns, first.host_ns + last.end_ns)
    host_ns = end_ns - (last.end_ns - last.host_ns) if last.host_waits else first.host_ns + last.host_ns
    return Measured(device_ns, host_ns, end_ns, first.host_waits | last.host_waits, read_ns, sent_ns)


def at_its_end(one: Measured) -> Measured:
    """The same, the host's wait behind all of it, as copies to the host, which are told apart."""
    if not one.tells_host:
        return one
    told_ns = one.read_ns + one.sent_ns
    device_ns, end_ns = one.device_ns - told_ns, max(0, one.end_ns - told_ns)
    host_ns = max(0, end_ns - device_ns) if one.host_waits else one.host_ns
    return one._replace(device_ns=device_ns, host_ns=host_ns, end_ns=end_ns)


def stalled(one: Measured, stall_us: float) -> Measured:
    """The same, and then the device waits so long."""
    if stall_us <= 0:
        return one
    stall_ns = round(stall_us * 1000)
    return one._replace(device_ns=one.device_ns + stall_ns, end_ns=max(one.end_ns, one.host_ns) + stall_ns)
