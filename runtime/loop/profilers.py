"""A torch.profiler that the program starts takes precedence over a session's own recording.

Both need the allocator's reports, which PyTorch delivers to one profiler of a thread: the second one to start would
raise, and the program's must not, because of ours. Sessions of other threads record on, unless the thread has none.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd import profiler

from runtime.loop.patches import Function, Patch, Patches


@contextmanager
def give_way_to_profilers(give_way: Callable[[], None]) -> Iterator[None]:
    """Inside, `give_way` is called before any torch.profiler starts."""
    recording = (threading.get_ident(), give_way)
    _recordings.append(recording)
    try:
        with _patches.standing():
            yield
    finally:
        _recordings.remove(recording)


def _after_recordings(start: Function) -> Function:
    def wrapper(*args: Any, **options: Any) -> Any:
        thread, recordings = threading.get_ident(), list(_recordings)
        own = [give_way for of, give_way in recordings if of == thread]
        for give_way in own or [give_way for _, give_way in recordings]:
            give_way()
        return start(*args, **options)

    return wrapper


_recordings: list[tuple[int, Callable[[], None]]] = []
_patches = Patches(
    lambda: [Patch(profiler, name, _after_recordings) for name in ("_prepare_profiler", "_enable_profiler")]
)
