"""What a solver decides about a measured step, and what blocks do by it: one layer for all of them, or each its own."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from runtime.recompute.asked import JOINT, OF_UNLIKE_BLOCKS, WHOLE
from runtime.recompute.deciding import decide
from runtime.recompute.footprint import Footprint, Peaks
from runtime.recompute.graph import Step, step_of
from runtime.recompute.joint import JointStep
from runtime.recompute.joint_problem import peaks_all_there
from runtime.recompute.layer import Layer, policy_of
from runtime.recompute.outside import Uses, held_units
from runtime.recompute.policy import BlockPolicy, store_nothing
from runtime.recompute.whole import WholeStep, answer_of_nothing
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.ir.joint import JointProblem
from solvers.ir.recompute import RecomputeGraphProblem, RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution
from solvers.planner import build_solver, solve, solver_entry

MOST_WALKS = 8
"""How often a plan of a whole step is made for less, where further backward passes take more than the first."""
AnyProblem = RecomputeLayerProblem | RecomputeGraphProblem | JointProblem
Decided = tuple[AnyProblem, Solution[Any]]


@dataclass(frozen=True)
class Kept:
    """A decision to which one may go back: who made it, what it was, and what it promised at which level."""

    whole: WholeStep | JointStep | None
    decided: Decided
    promised_bytes: int
    level_bytes: int


class Decisions:
    """The measured `layers` of a step, the level that later ones have beside them, and what was decided last.

    `level_bytes` are in use where a pass begins, `beyond_bytes` what later steps take beside what was reckoned;
    `promised_bytes` is the peak that the plan is reckoned to have, `whole` who decides about the whole step, where not
    a solver of layers does. `by_default`: nobody asked for the solver, which another one replaces where it can only
    refuse.
    """

    def __init__(
        self,
        solver: str,
        parameters: Mapping[str, object],
        limits: Limits,
        device: torch.device,
        blocks: int,
        *,
        by_default: bool,
    ) -> None:
        self._solver, self._limits, self._device = build_solver(solver, parameters), limits, device
        self._named, self._blocks, self._by_default = solver, blocks, by_default
        self._untrained = self._uncalled = 0
        kind = solver_entry(solver).kind
        self.whole: WholeStep | JointStep | None = WholeStep(self._solver, limits) if kind == WHOLE else None
        if kind == JOINT:
            self.whole = JointStep(self._solver, limits, device)
        self.layers: list[Layer] = []
        self.footprint: Footprint | None = None
        self._peaks, self._uses = Peaks(), Uses()
        self.measured_level_bytes = self.level_bytes = self.beyond_bytes = 0
        self.promised_bytes = 0
        self.decided: Decided | None = None
        self.stays = False
        self._own: tuple[RecomputeLayerPlan | None, list[Layer], list[BlockPolicy]] | None = None

    @property
    def joint(self) -> JointStep | None:
        """Who decides, where storages leave for the host."""
        return self.whole if isinstance(self.whole, JointStep) else None

    def measured(
        self,
        layers: list[Layer],
        uses: Uses,
        footprint: Footprint,
        at_once: Mapping[int, float],
        stays: bool,
        untrained: int = 0,
        uncalled: int = 0,
    ) -> None:
        """What the first step was; blocks that are not alike are refused by name, where they have to be.

        `at_once`: by block, how many calls like its measured one came before a backward pass. A plan of the whole step
        has them as one, in which each op stands for so many, unless calls have `layers` of their own. `stays`: a
        backward pass left the graph (`retain_graph`). `untrained`: so many blocks, the last by number, have no
        parameter that wants gradients, and store nothing; `uncalled`: so many others were not called.
        """
        self.layers, self.footprint, self._uses, self.stays = layers, footprint, uses, stays
        self._untrained, self._uncalled = untrained, uncalled
        self._peaks = footprint.peaks
        if self.whole is None and self.wholly(layers):
            self._named = OF_UNLIKE_BLOCKS
            self.whole = JointStep(build_solver(self._named, {}), self._limits, self._device)
        if self.whole is None:
            self._alike()
            return
        held = [layer.held(held_units(uses, block, layer)) for block, layer in enumerate(layers)]
        self.layers = [layer.times(at_once.get(block, 1)) for block, layer in enumerate(held)]
        there, once = peaks_all_there(footprint, self.layers), max(at_once.values(), default=1) <= 1
        self._peaks = there.at_least(footprint.peaks) if once and self.joint is None else there

    def wholly(self, layers: Sequence[Layer]) -> bool:
        """Whether a plan for them is one of the whole step."""
        alike = _alike(layers) and any(layer.decided() for layer in layers)
        return self.whole is not None or (self._by_default and not alike)

    def takes(self, layers: Sequence[Layer]) -> bool:
        """Whether there can be a plan for them, where there is one for others: a solver of layers wants them alike."""
        return not self.layers or self.whole is not None or _alike(layers)

    @property
    def passes(self) -> float:
        """In a plan of the whole step, how many forward passes of a block come before its backward pass, at most."""
        return max((layer.passes for layer in self.layers), default=1)

    @property
    def uncalled_bytes(self) -> int:
        """What blocks that the measured step did not call may take, which store nothing; layers' plans count them."""
        if self.whole is None or not self._uncalled:
            return 0
        inputs = self._uncalled * max(one.input_bytes for one in self.layers)
        return inputs + max(sum(unit.bytes for unit in one.units) for one in self.layers)

    @property
    def largest_bytes(self) -> int:
        """The largest block that a plan stores, or has run again."""
        return max((size for layer in self.layers for unit in layer.units for size in unit.sizes), default=0)

    @property
    def small_bytes(self) -> int:
        """What is stored in small blocks."""
        pairs = zip(self.layers, self.policies(), strict=False)
        return sum(layer.small_bytes(policy) for layer, policy in pairs)

    def decide(self, within_bytes: int) -> None:
        """Ask the solver for a plan of so many bytes; raises `InfeasibleBudget`."""
        if self.whole is not None:
            if self.stays and (self.joint is None or self.joint.together is None):
                self._decide_for_all_passes(self.whole, within_bytes)
            else:
                self._decide_whole(self.whole, within_bytes)
            return
        layer = self._alike()

        def peak_of(plan: RecomputeLayerPlan | None) -> int:
            assert self.footprint is not None
            policies = self._policies_of(layer, plan)
            more = sum(layer.kept_bytes(one) for one in policies[len(self.layers) : self._blocks - self._untrained])
            return self.footprint.walk(policies).peak_bytes + self._later_bytes + more

        decided = decide(
            lambda problem, limits: solve(self._solver, problem, limits).solution, self._limits, layer,
            self._blocks - self._untrained, within_bytes, peak_of,
        )  # fmt: skip
        self.decided = decided
        self.promised_bytes = peak_of(decided[1].plan)

    def _decide_whole(self, whole: WholeStep | JointStep, within_bytes: int) -> None:
        step = self.step("whole step")
        if isinstance(whole, JointStep):
            solution: Solution[Any] = whole.decide(step, self.layers, within_bytes, moves=not self.stays)
        else:
            solution = whole.decide(step, self.layers, within_bytes)
        assert whole.problem is not None
        self.decided, self.promised_bytes = (whole.problem, solution), whole.peak_bytes
        if self.stays:  # the plan knows the first backward pass only: what runs again does so when it is asked for
            whole.policies = [replace(policy, work=None) for policy in whole.policies]

    def _decide_for_all_passes(self, whole: WholeStep | JointStep, within_bytes: int) -> None:
        """The graph knows a block's first backward pass, behind which what is stored stays for the others.

        A walk through the measured step tells what all of them take; the plan is made for less until that fits.
        """
        room = within_bytes
        for turn in range(MOST_WALKS):
            try:
                self._decide_whole(whole, room)
            except InfeasibleBudget:
                break
            took = self._walked_bytes(whole.policies)
            if took <= within_bytes:
                self.promised_bytes = took
                return
            room -= max(took - within_bytes, (within_bytes >> 7) << turn)
        self._store_nothing(whole, within_bytes)

    def _walked_bytes(self, policies: Sequence[BlockPolicy]) -> int:
        """What a walk through the measured step takes under policies, with what later steps have beside it."""
        assert self.footprint is not None
        return self.footprint.walk(policies).peak_bytes + self._later_bytes

    def _store_nothing(self, whole: WholeStep | JointStep, within_bytes: int) -> None:
        """Where none of the solver's plans keeps the budget in all backward passes, the measured step may."""
        nothing = self.nothing()
        took = self._walked_bytes(nothing)
        if took > within_bytes:
            raise InfeasibleBudget(
                f"the budget is {within_bytes} bytes, the least feasible one {took}, at which the blocks store nothing "
                "in the step that was measured, whose graph stays for further backward passes (retain_graph): raise it",
                took,
            )
        step = self.step("whole step")
        problem = whole.asked(step, self.layers, took)
        self.decided = problem, answer_of_nothing(step, self.layers, problem, self._named)
        whole.policies, self.promised_bytes = nothing, took

    def keep(self) -> Kept:
        """What is decided now, to go back to."""
        assert self.decided is not None
        return Kept(copy.copy(self.whole), self.decided, self.promised_bytes, self.level_bytes)

    def go_back(self, kept: Kept) -> None:
        """Decide what was decided then, at today's level."""
        self.whole, self.decided = copy.copy(kept.whole), kept.decided
        self.promised_bytes = kept.promised_bytes + self.level_bytes - kept.level_bytes

    @property
    def cost(self) -> float:
        """The objective of what is decided."""
        assert self.decided is not None
        objective = self.decided[1].objective
        return float("inf") if objective is None else objective

    @property
    def _later_bytes(self) -> int:
        """What later steps have in use beside the measured one."""
        return self.beyond_bytes + self.level_bytes - self.measured_level_bytes

    def _alike(self) -> Layer:
        """The blocks' common layer: the slowest of each operator, of blocks that run the same."""
        first = self.layers[0]
        for index, other in enumerate(self.layers):
            if other.names != first.names:
                raise InvalidInput(
                    f"block {index} runs other operators than block 0: give blocks= the ones that are alike, or choose "
                    "a solver of the whole step (joint, opt)"
                )
        made = tuple(map(max, *(one.made for one in self.layers))) if len(self.layers) > 1 else first.made
        return replace(self.layers[len(self.layers) // 2].decided_alone(), made=made)

    def nothing(self) -> list[BlockPolicy]:
        """Policies that store nothing: of all blocks, or calls that have layers of their own."""
        return store_nothing(max(self._blocks, len(self.layers)))

    def policies(self) -> list[BlockPolicy]:
        """What each block does; nothing is stored where nothing is decided."""
        if self.whole is not None:
            return self.nothing() if self.decided is None else self.whole.policies
        plan = None if self.decided is None else self.decided[1].plan
        if self._own is None or self._own[0] is not plan or self._own[1] is not self.layers:
            self._own = plan, self.layers, self._own_limits(self._policies_of(self._alike(), plan))
        return self._own[2]

    def _own_limits(self, policies: Sequence[BlockPolicy]) -> list[BlockPolicy]:
        """The same, each block by its own size: of two towers of like blocks one may grow to the other's."""
        measured = [
            one if one.store.most_bytes is None else replace(one, store=layer.storing(one.store.store))
            for one, layer in zip(policies, self.layers, strict=False)
        ]
        return [*measured, *policies[len(self.layers) :]]

    def _policies_of(self, layer: Layer, plan: RecomputeLayerPlan | None) -> list[BlockPolicy]:
        """What each block does by a plan; without one nothing is stored."""
        if plan is None:
            return self.nothing()
        each: list[BlockPolicy] = []
        for group in plan.groups:
            each += [policy_of(layer, group)] * group.layers
        return each + store_nothing(self._untrained)

    def step(self, name: str) -> Step:
        """The measured step, with what later ones have in use beside it."""
        source = f"the tapes of {len(self.layers)} blocks on {self._device}"
        return step_of(
            self.layers, self._peaks, beyond_bytes=self._later_bytes, name=name, source=source, uses=self._uses
        )

    def beside_base_us(self) -> tuple[float, float | None]:
        """A step's recomputation on the critical path by the plan, and the solver's bound of it."""
        assert self.decided is not None
        solution = self.decided[1]
        assert solution.objective is not None
        base, bound = solution.base or 0 if self.whole is not None else 0, solution.bound
        return solution.objective - base, None if bound is None else bound - base


def _alike(layers: Sequence[Layer]) -> bool:
    """Whether they all run the same operators."""
    return len({one.names for one in layers}) == 1
