"""From the clock's marks to whole microseconds that add up."""

from collections.abc import Sequence


def operator_times_us(elapsed_ns: Sequence[int]) -> tuple[int, ...]:
    """Time of each operator in µs, from the moments at which the operators and then the step ended.

    `elapsed_ns` never decreases. Cumulative time is rounded, so the sum is the step's time to the nearest µs and
    rounding never adds up. Every operator takes at least 1 µs, borrowed from its successors, or near the end from its
    predecessors; only a step of less than 1 µs an operator becomes longer. What followed the last one is its own.
    """
    ends = [(moment + 500) // 1000 for moment in elapsed_ns[:-1]]
    if not ends:
        return ()
    ends[-1] = max((elapsed_ns[-1] + 500) // 1000, len(ends))
    for number in range(len(ends) - 2, -1, -1):
        ends[number] = min(ends[number], ends[number + 1] - 1)
    previous = 0
    times = []
    for end in ends:
        times.append(max(end - previous, 1))
        previous += times[-1]
    return tuple(times)
