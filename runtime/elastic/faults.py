"""What ends a worker's part in a generation, or the whole training."""

from solvers.ir.errors import BayplanError


class PeerLost(Exception):
    """Another process is gone, or does not answer: this generation ends, and the next one begins."""


class SupervisorLost(BayplanError):
    """The supervisor is gone: nobody would plan the next generation, so this process ends."""


class TurnedAway(BayplanError):
    """This process computes something else than the others: they go on without it."""


class JobFault(BayplanError):
    """The job itself cannot go on, with any processes: the training ends with this sentence."""


def in_words(error: Exception) -> str:
    """What went wrong: the system's own words, if it was the system, else the kind of error and its first line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
