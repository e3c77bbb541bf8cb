"""Mapping and senders at once, least time of the busiest node (CP-SAT): where `restore` does not prove its answer.

Between kinds a of nodes (n_a of them) and b of stages (n_b), in grains, the common divisor of the layers' sizes w_l:
(1) x_ab nodes of a take stages of b: Σ_a x_ab = n_b, Σ_b x_ab <= n_a; (2) u_ab <=> x_ab > 0, and then T is at least
what such a node receives; (3) kind a sends y_al copies of layer l that it holds: Σ_a y_al = Σ_{a lacks l} Σ_{b needs l}
x_ab; (4) Σ_l w_l y_al <= n_a T. Minimise T. With layers of one size (4) is exact, as n_a nodes can share any n_a T
copies evenly; else it is a relaxation, whose bound holds and whose mapping is as good as its senders turn out.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from solvers.ir.replan import ReplanProblem
from solvers.ir.solution import Limits
from solvers.replan.transfer.mapping import NodeMapping, alike_stages, hand_out, received_load
from solvers.replan.transfer.restore import Restored, Restorer, Split

if TYPE_CHECKING:
    from solvers.engines.cpsat import LinearExprT


def restore_exactly(problem: ReplanProblem, pipelines: Sequence[Split], limits: Limits) -> Restored:
    """The quickest transfers of these pipelines: `transfer_us == least_us`, unless limits or unequal layers prevent it.

    Never slower than `restore`, and the same wherever that is proven already. With hosts it is `restore`.
    """
    restorer = Restorer(problem)
    quick = restorer.restore(pipelines)
    if quick.transfer_us == quick.least_us or problem.hosts is not None:
        return quick
    mapping, bound = _Model(restorer, pipelines, quick).solve(limits)
    least_us = max(quick.least_us, restorer.topology.time_us(bound))
    if mapping is not None:
        joint = restorer.mapped(pipelines, mapping, least_us)
        if joint.transfer_us < quick.transfer_us:
            return joint
    return Restored(quick.pipelines, quick.transfers, quick.transfer_us, least_us, quick.unowned)


class _Model:
    """The numbered families of the module, and what they speak of."""

    def __init__(self, restorer: Restorer, pipelines: Sequence[Split], quick: Restored) -> None:
        from solvers.engines.cpsat import CpModel  # half a second: only where it is needed

        self.kinds, self.sizes = restorer.kinds, restorer.sizes
        self.alike = alike_stages(restorer.stages(pipelines))
        self.load = received_load(self.kinds, list(self.alike), self.sizes, restorer.topology)
        self.grain = math.gcd(*self.sizes) or 1
        self.model = CpModel()
        grain_us = restorer.topology.time_us(self.grain)
        least, most = int(quick.least_us / grain_us), int(quick.transfer_us / grain_us)
        self.busiest = self.model.new_int_var(least, most, "busiest")
        self.takes = [
            [self.model.new_int_var(0, min(len(kind.nodes), len(group)), "") for group in self.alike.values()]
            for kind in self.kinds
        ]

    def solve(self, limits: Limits) -> tuple[NodeMapping | None, int]:
        """The mapping, if any was found, and the bound in bytes."""
        from solvers.engines.cpsat import solve_cpsat

        self._assign()
        self._receive()
        self._send()
        self.model.minimize(self.busiest)
        answer = solve_cpsat(self.model, limits, watch=None)
        bound = (answer.bound or 0) * self.grain
        if answer.objective is None:
            return None, bound
        flow = np.array([[answer.value(count) for count in row] for row in self.takes], dtype=np.int64)
        return hand_out(flow, self.kinds, list(self.alike.values()), self.load), bound

    def _assign(self) -> None:  # (1)
        for group, column in zip(self.alike.values(), zip(*self.takes, strict=True), strict=True):
            self.model.add(sum(column) == len(group))
        for kind, row in zip(self.kinds, self.takes, strict=True):
            self.model.add(sum(row) <= len(kind.nodes))

    def _receive(self) -> None:  # (2)
        for row, loads in zip(self.takes, self.load.tolist(), strict=True):
            for count, load in zip(row, loads, strict=True):
                used = self.model.new_bool_var("")
                self.model.add(count == 0).only_enforce_if(~used)
                self.model.add(self.busiest >= load // self.grain).only_enforce_if(used)

    def _send(self) -> None:  # (3), (4)
        stages = sum(map(len, self.alike.values()))
        sent: list[list[LinearExprT]] = [[] for _ in self.kinds]
        for layer, size in enumerate(self.sizes):
            if not size:
                continue
            holds = [kind.held[0] <= layer < kind.held[1] for kind in self.kinds]
            needs = [first <= layer < end for first, end in self.alike]
            lacking = [row for row, held in zip(self.takes, holds, strict=True) if not held]
            arriving = [count for row in lacking for count, needed in zip(row, needs, strict=True) if needed]
            copies = {a: self.model.new_int_var(0, stages, "") for a, held in enumerate(holds) if held}
            self.model.add(sum(copies.values()) == sum(arriving))
            for a, count in copies.items():
                sent[a].append(size // self.grain * count)
        for kind, amounts in zip(self.kinds, sent, strict=True):
            self.model.add(sum(amounts) <= len(kind.nodes) * self.busiest)
