"""What is in use after each request and free."""

from solvers.timeline.segments import Event

MIB = 1 << 20


def levels(events: list[Event]) -> list[int]:
    """MiB in use after each event, rounded down."""
    sizes: dict[int, int] = {}
    level, found = 0, []
    for event in events:
        level += event.bytes or -sizes.pop(event.block)
        sizes |= {event.block: event.bytes} if event.bytes else {}
        found.append(level // MIB)
    return found
