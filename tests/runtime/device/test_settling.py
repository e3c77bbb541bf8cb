"""What is in use once garbage in cycles is gone, and what another thread still drops."""

import threading
import time

import pytest

from runtime.device import settling
from runtime.device.settling import settled


class Held:
    """Bytes in use for as long as it lives."""

    alive = 0

    def __init__(self) -> None:
        type(self).alive += 100
        self.itself = self

    def __del__(self) -> None:
        type(self).alive -= 100


def test_garbage_in_cycles_is_gone() -> None:
    Held()
    assert Held.alive == 100
    assert settled(lambda: Held.alive) == 0


def test_what_another_thread_drops_a_little_later_is_waited_for() -> None:
    begun, left = threading.Event(), [300]

    def drop() -> None:
        begun.wait()
        for _ in range(3):
            time.sleep(settling.LOOK_S)
            left[0] -= 100

    thread = threading.Thread(target=drop)
    thread.start()
    begun.set()
    assert settled(lambda: left[0]) == 0
    thread.join()


def test_who_never_rests_is_not_waited_for_endlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MOST_LOOKS", 8)
    looks: list[int] = []

    def busy() -> int:
        looks.append(1)
        return len(looks)

    assert settled(busy) == 9
