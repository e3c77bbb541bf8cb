"""How ranks of a process end: nothing of theirs is left that would want Python after it is gone.

gloo's threads need Python's lock when they let go of an operation: its tensors, and what backward was told. One that
asks for it while the interpreter ends is ended there, within a destructor, and takes the process along ("terminate
called without an active exception"). A group that has been destroyed has no threads, but it is only once nobody holds
it.
"""

import gc
import sys
import time
from importlib import import_module
from pathlib import Path

GLOO = "pt_gloo_runloop"
"""What the system calls gloo's threads."""
LOOKS = 3
"""So often in a row they must be seen at rest: one that waits for Python's lock rests, too, until it has it."""
LOOK_S = 0.005
AT_REST = "SIXZ"
"""Linux's states of a thread that waits for something, or has ended."""


def load_what_keeps_the_world() -> None:
    """Before there is a world: functions of `torch.distributed.nn` take it as a default, for good, when first loaded.

    DDP loads them, by way of torch.compile, and its first world would live as long as the process.
    """
    import_module("torch.distributed.nn.functional")


def let_go_of_groups(limit_s: float = 5.0) -> bool:
    """After groups have been destroyed: those that only garbage holds end, and others' threads come to rest.

    Returns whether they have, within the limit; off Linux the threads of groups that somebody holds cannot be seen.
    """
    gc.collect()  # a module under DDP holds its group, and itself
    seen, until_s = 0, time.monotonic() + limit_s
    while seen < LOOKS:
        seen = seen + 1 if _at_rest() else 0
        if seen < LOOKS:
            if time.monotonic() > until_s:
                return False
            time.sleep(LOOK_S)
    return True


def gloo_threads() -> list[str]:
    """The states of this process's threads of gloo, as Linux tells them; elsewhere none is seen."""
    found = []
    for task in Path("/proc/self/task").glob("*") if sys.platform.startswith("linux") else ():
        try:
            if (task / "comm").read_text().strip() == GLOO:
                found.append((task / "stat").read_text().rpartition(")")[2].split()[0])
        except OSError:  # It has ended meanwhile.
            continue
    return found


def _at_rest() -> bool:
    return all(state in AT_REST for state in gloo_threads())
