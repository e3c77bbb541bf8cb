"""What work costs on two clocks, the host's that launches it and the device's that runs it."""

from typing import NamedTuple


class Cost(NamedTuple):
    """Work of a stream, in nanoseconds.

    `device_ns` is the device's own time, the host being far ahead; `launch_ns` the host's until all is issued; `end_ns`
    that from the host's begin to the end of the work, the device being idle. `waits`: the host has waited for the
    device in it, as a copy from pageable memory makes it do.
    """

    device_ns: int
    launch_ns: int
    end_ns: int
    waits: bool = False

    def then(self, other: "Cost") -> "Cost":
        """Both, one after the other."""
        if self.waits:  # host and device begin the other one together
            alone = max(other.device_ns, other.end_ns)
            begin = max(self.launch_ns, self.end_ns)
            return Cost(self.device_ns + alone, begin + other.launch_ns, begin + alone, waits=True)
        end = max(self.end_ns + other.device_ns, self.launch_ns + other.end_ns)
        total = self.device_ns + other.device_ns
        return Cost(total, self.launch_ns + other.launch_ns, end, other.waits)

    @property
    def alone_us(self) -> int:
        """What it takes where host and device begin together, in microseconds."""
        return max(0, round(max(self.device_ns, self.end_ns) / 1000))


NOTHING = Cost(0, 0, 0)


def one_launch(launch_ns: int, duration_ns: int) -> Cost:
    """A single kernel or copy."""
    return Cost(duration_ns, launch_ns, launch_ns + duration_ns)


def together(costs: "list[Cost] | tuple[Cost, ...]") -> Cost:
    """All, one after the other."""
    total = NOTHING
    for cost in costs:
        total = total.then(cost)
    return total
