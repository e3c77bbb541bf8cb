"""Memory in use once what nobody needs any more is gone."""

import gc
import time
from collections.abc import Callable

LOOK_S = 0.002
QUIET_LOOKS = 5
"""So many looks in a row, `LOOK_S` seconds apart, must find the same."""
MOST_LOOKS = 500


def settled(bytes_in_use: Callable[[], int]) -> int:
    """Collect garbage in cycles, then wait until what autograd's threads drop is gone; the bytes in use after that.

    A backward pass returns to its caller a little before its thread has dropped the last of its graph, which needs
    Python's lock. Gives up waiting after a second: then somebody else is at work.
    """
    gc.collect()
    last, quiet = bytes_in_use(), 0
    for _ in range(MOST_LOOKS):
        if quiet == QUIET_LOOKS:
            break
        time.sleep(LOOK_S)
        now = bytes_in_use()
        quiet = quiet + 1 if now == last else 0
        last = now
    return last
