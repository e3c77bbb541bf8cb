"""Several sessions in one process: of each device one is active, and those below it rest.

All of a device follow one thread.
"""

import threading
from typing import NamedTuple, Protocol

import torch

from solvers.ir.errors import InvalidInput


class Suspendable(Protocol):
    """A session of a device, which can be active or rest."""

    @property
    def device(self) -> torch.device:
        """Whose memory it keeps."""
        ...

    def _enter(self) -> None: ...

    def _leave(self) -> None: ...


class _Entry(NamedTuple):
    """A session that has begun to follow a thread."""

    session: Suspendable
    thread: int


_STACKS: dict[torch.device, list[_Entry]] = {}


def activate(session: Suspendable) -> None:
    """Make a session its device's active one; whichever was rests until this one leaves. Nothing changes on an error.

    Raises `InvalidInput` while another thread's session of the device is active: it would be followed on this one
    afterwards.
    """
    device = session.device
    resting = active(device)
    if resting is session:
        return
    thread = threading.get_ident()
    stack = _STACKS.setdefault(device, [])
    if stack and stack[-1].thread != thread:
        raise InvalidInput(
            f"a session of another thread is active on device {device}, and one at a time can be: close or pause it "
            "first, or use another device"
        )
    if resting is not None:
        resting._leave()
    try:
        session._enter()
    except BaseException:
        if resting is not None:
            resting._enter()
        raise
    _drop(session)
    stack.append(_Entry(session, thread))


def deactivate(session: Suspendable) -> None:
    """Let a session rest; if it was the active one, the one below it goes on."""
    was_active = active(session.device) is session
    _drop(session)
    if not was_active:
        return
    try:
        session._leave()
    finally:
        below = active(session.device)
        if below is not None:
            below._enter()


def active(device: torch.device) -> Suspendable | None:
    """The device's active session."""
    stack = _STACKS.get(device)
    return stack[-1].session if stack else None


def _drop(session: Suspendable) -> None:
    stack = _STACKS.get(session.device, [])
    stack[:] = [entry for entry in stack if entry.session is not session]
