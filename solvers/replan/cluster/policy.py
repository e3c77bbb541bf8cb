"""The interface of all policies, so that the simulation knows none of them."""

from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from solvers.ir.names import unknown
from solvers.replan.cluster.cluster import Cluster
from solvers.replan.cluster.setting import Checkpoints
from solvers.replan.cluster.state import Change, Running

Rejoin = Literal["at-once", "next-decision"]
"""A repaired node is used at once if F2 says so, or waits for the next decision that a failure asks for."""


@dataclass(frozen=True)
class Rejoining:
    """The parameter that all policies share: when they use repaired nodes."""

    rejoin: Rejoin = field(default="at-once", kw_only=True)

    def __post_init__(self) -> None:
        """Refuse an unknown word."""
        if self.rejoin not in get_args(Rejoin):
            raise unknown("choice for rejoin", self.rejoin, get_args(Rejoin))


class Policy(Protocol):
    """A frozen dataclass whose fields are its parameters; it keeps nothing between calls.

    It is asked with the state as it is after the event: stages whose node is gone hold None, nodes that have joined
    stand idle, `step_us` is that of before. `checkpoints` is what it pays for and can go back to.
    """

    @property
    def checkpoints(self) -> Checkpoints | None:
        """Copies that this policy's runs write; None: none, and a loss of all copies starts training over."""
        ...

    def failed(self, cluster: Cluster, running: Running) -> Change:
        """How to go on after nodes with a stage have failed; with `step_us` None if nothing can train."""
        ...

    def repaired(self, cluster: Cluster, running: Running) -> Change | None:
        """What to do with nodes that have joined; None: go on as before."""
        ...
