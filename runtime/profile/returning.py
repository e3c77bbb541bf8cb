"""A profiled step's requests as a step that comes again: on what the one before left."""

from collections.abc import Iterator, Mapping, Sequence

from runtime.device.held import Held
from runtime.profile.requests import Request
from solvers.ir.fields import TensorId
from solvers.ir.requests import StepRequests, in_use

Asked = tuple[int, int, int, int]
"""Block, bytes, stream and op, as in `StepRequests.events`."""
MOST_UNLIKE_BYTES = 1 << 20
"""An allocator gives a block that is up to this much larger than what was asked for."""


def step_requests(
    requests: Sequence[Request], taken_by: Mapping[TensorId, int], sizes: Mapping[TensorId, int], held: Held
) -> StepRequests:
    """The requests of a step after which the allocator held that much.

    `taken_by` says which request took a tensor's block, `sizes` its bytes. What the step frees without having taken it,
    the step before has left: here it is what this one leaves in its place.
    """
    exact = {number: sizes[name] for name, number in taken_by.items()}
    events, live = list[Asked](), dict[int, int]()
    found, block_of = dict[int, int](), dict[int, int]()
    for number, request in enumerate(requests):
        op = -1 - request.begun if request.op is None else request.op
        if request.bytes > 0:
            block = live[request.address] = block_of[number] = len(block_of)
            events.append((block, exact.get(number, request.bytes), request.stream, op))
        else:
            if request.address not in live:
                found[len(events)] = -request.bytes
            events.append((live.pop(request.address, 0), 0, 0, op))
    carried = dict(zip(found, _replaced(list(found.values()), live, held), strict=True))
    return StepRequests(
        expandable=held.settings.expandable,
        max_split_bytes=held.settings.max_split_bytes,
        most_rounding_bytes=held.settings.most_rounding_bytes,
        runs=held.runs,
        events=tuple(_named(events, carried)),
        block_of=tuple((name, block_of[number]) for name, number in taken_by.items()),
        carried=tuple(pair for pair in carried.values() if pair is not None),
    )


def _replaced(sizes: Sequence[int], left: Mapping[int, int], held: Held) -> list[tuple[int, int] | None]:
    """For each found block the one left in its place: what it is called when it is found, and its own number.

    Of blocks that are alike the last one: gradients are made from the last layer back, and freed from the first on.
    """
    used = in_use(held.runs)
    there = [(address - held.base, block) for address, block in left.items() if address - held.base in used]
    pairs: list[tuple[int, int] | None] = []
    for size in sizes:
        ranked = sorted((abs(used[address] - size), -place) for place, (address, _) in enumerate(there))
        if ranked and ranked[0][0] <= min(MOST_UNLIKE_BYTES, size // 4):
            address, block = there.pop(-ranked[0][1])
            pairs.append((-1 - address, block))
        else:
            pairs.append(None)
    return pairs


def _named(events: Sequence[Asked], carried: Mapping[int, tuple[int, int] | None]) -> Iterator[Asked]:
    """The events, in which a found block is called as it will be found, or left out if nothing takes its place."""
    for place, (block, size, stream, op) in enumerate(events):
        pair = carried.get(place, (block, 0))
        if pair is not None:
            yield pair[0], size, stream, op
