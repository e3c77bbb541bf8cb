"""What ends a worker's part in a generation, or the whole training."""

from solvers.ir.errors import BayplanError


class PeerLost(Exception):
    """Another process is gone, or does not answer: this generation ends, and the next one begins."""


class SupervisorLost(BayplanError):
    """The supervisor is gone: nobody would plan the next generation, so this process ends."""


class JobFault(BayplanError):
    """The job itself cannot go on, with any processes: the training ends with this sentence."""
