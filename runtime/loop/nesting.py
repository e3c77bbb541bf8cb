"""Several sessions in one process: one is active, those below it rest; all follow one thread."""

import threading
from typing import NamedTuple, Protocol

from solvers.ir.errors import InvalidInput


class Suspendable(Protocol):
    """A session, which can be active or rest."""

    def _enter(self) -> None: ...

    def _leave(self) -> None: ...


class _Entry(NamedTuple):
    """A session that has begun to follow a thread."""

    session: Suspendable
    thread: int


_STACK: list[_Entry] = []


def activate(session: Suspendable) -> None:
    """Make a session the active one; whichever was active rests until this one leaves. Nothing changes on an error.

    Raises `InvalidInput` while a session of another thread is active: it would be followed on this one afterwards.
    """
    resting = active()
    if resting is session:
        return
    thread = threading.get_ident()
    if _STACK and _STACK[-1].thread != thread:
        raise InvalidInput("a session of another thread is active, and one at a time can be: close or pause it first")
    if resting is not None:
        resting._leave()
    try:
        session._enter()
    except BaseException:
        if resting is not None:
            resting._enter()
        raise
    _drop(session)
    _STACK.append(_Entry(session, thread))


def deactivate(session: Suspendable) -> None:
    """Let a session rest; if it was the active one, the one below it goes on."""
    was_active = active() is session
    _drop(session)
    if not was_active:
        return
    try:
        session._leave()
    finally:
        below = active()
        if below is not None:
            below._enter()


def active() -> Suspendable | None:
    """The active session."""
    return _STACK[-1].session if _STACK else None


def _drop(session: Suspendable) -> None:
    _STACK[:] = [entry for entry in _STACK if entry.session is not session]
