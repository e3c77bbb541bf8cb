"""A step's requests as it comes again: what it frees and did not take is what it leaves in its place."""

from runtime.device.held import Held
from runtime.profile import Request
from runtime.profile.returning import step_requests
from solvers.ir.requests import HeldRun
from solvers.timeline.segments import SegmentSettings

KIB = 1 << 10
BASE = 7 << 20


def held(*blocks: tuple[int, bool]) -> Held:
    run = HeldRun(address=0, stream=0, small=True, expandable=False, blocks=blocks)
    return Held(SegmentSettings(), BASE, (run,))


def test_a_gradient_takes_the_place_of_the_last_one() -> None:
    """The step frees 64 KiB that it finds (its gradient, not the 512 bytes), makes a tensor and another gradient."""
    requests = (
        Request(BASE + 999, -64 * KIB, None, 0, begun=0),
        Request(BASE, 8 * KIB, 0, 0, begun=1),
        Request(BASE + 8 * KIB, 64 * KIB, 1, 0, begun=2),
        Request(BASE, -8 * KIB, None, 0, begun=3),
        Request(BASE + 999, -512, None, 0, begun=3),
    )
    told = step_requests(requests, {"made": 1}, {"made": 8 * KIB - 100}, held((8 * KIB, False), (64 * KIB, True)))
    gradient = -1 - 8 * KIB
    assert told.events == ((gradient, 0, 0, -1), (0, 8 * KIB - 100, 0, 0), (1, 64 * KIB, 0, 1), (0, 0, 0, -4))
    assert told.carried == ((gradient, 1),) and told.block_of == (("made", 0),)


def test_of_several_that_are_left_the_one_nearest_in_size_is_found() -> None:
    requests = (
        Request(BASE, 8 * KIB, 0, 0, begun=1),
        Request(BASE + 8 * KIB, 12 * KIB, 0, 0, begun=1),
        Request(BASE + 999, -12 * KIB, 0, 0, begun=1),
    )
    told = step_requests(requests, {}, {}, held((8 * KIB, True), (12 * KIB, True)))
    assert told.carried == ((-1 - 8 * KIB, 1),)


def test_gradients_alike_are_freed_from_the_first_and_made_from_the_last() -> None:
    """Two of one size: the first freed is the first layer's, which the backward pass makes last."""
    requests = (
        Request(BASE + 900, -8 * KIB, None, 0, begun=0),
        Request(BASE + 950, -8 * KIB, None, 0, begun=0),
        Request(BASE, 8 * KIB, 1, 0, begun=2),
        Request(BASE + 8 * KIB, 8 * KIB, 2, 0, begun=3),
    )
    told = step_requests(requests, {}, {}, held((8 * KIB, True), (8 * KIB, True)))
    assert told.carried == ((-1 - 8 * KIB, 1), (-1, 0))
