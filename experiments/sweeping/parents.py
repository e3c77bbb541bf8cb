"""Processes that end with the one that began them."""

import multiprocessing
import multiprocessing.connection
import os
import threading
import time
from functools import cache

LOKY = "LokyProcess"
"""How joblib names its workers, which outlive a parent that is killed, for minutes."""
EVERY_S = 0.5


def end_with_parent() -> None:
    """End this process when the one that began it does, by kill -9 too: nothing of a lost sweep is left running."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def watch() -> None:
        multiprocessing.connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


@cache
def end_loky_with_parent() -> None:
    """The same in a worker of joblib's, which is no child of `multiprocessing` and knows its parent by number only."""
    if not multiprocessing.current_process().name.startswith(LOKY):
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
