"""A policy of selective checkpointing, as others' planners decide it: `bayplan-policy/1` (formats.md 16)."""

from typing import ClassVar, Literal

from solvers.ir.fields import Record, TensorId, require

OpName = TensorId
"""An op by its number, or by a name or pattern (`*`, `?`) that may mean several."""


class Policy(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Which outputs of the forward pass are saved for the backward pass, and which are computed again for it.

    Numbers in `saved` and `recomputed` count `nodes` where that is given, else the problem's ops. What neither names is
    as `others` says. `backward_from`: the first op of the backward pass (None: as the problem tells). `regions`: first
    and last op of each checkpointed region, which runs again as a whole; none: each op runs again where it is needed.
    """

    name: str
    saved: tuple[OpName, ...] = ()
    recomputed: tuple[OpName, ...] = ()
    nodes: tuple[OpName, ...] | None = None
    others: Literal["saved", "recomputed"] = "recomputed"
    backward_from: OpName | None = None
    regions: tuple[tuple[OpName, OpName], ...] = ()
    FORMAT: ClassVar[str] = "bayplan-policy/1"

    def __post_init__(self) -> None:
        """Refuse a policy that names nothing at all, or whose numbers can mean nothing."""
        require(
            bool(self.saved or self.recomputed),
            "saved and recomputed are both empty: name ops in one of them (all of them: the pattern *)",
        )
        require(self.nodes != (), "nodes is empty: list the names that numbers stand for, or leave it out")
