"""Plans of kind `joint`: per storage keep, swap or recompute, decided from the measured step and carried out.

As in `whole.py` the schedule of the plan says what is done. In the forward pass storages leave, are released and return
between operators, right before the next one begins; in the backward pass before each block's. A *moment* is one of
these places.
"""

from collections.abc import Collection, Sequence

import torch
import torch.distributed as dist
from msgspec.structs import replace

from runtime.device.native import core
from runtime.profile.machine import by_direction, hardware_of
from runtime.recompute.graph import OTHER, Step
from runtime.recompute.joint_launches import units_begin, waits_before_units, waits_within
from runtime.recompute.joint_problem import joint_problem
from runtime.recompute.joint_rest import with_rest
from runtime.recompute.layer import Layer
from runtime.recompute.moves import Does, Move
from runtime.recompute.places import behind_units, given_to
from runtime.recompute.policy import BlockPolicy
from runtime.recompute.results_apart import other_results, units_deed
from runtime.recompute.together import Together, require_simulated, together_with
from runtime.recompute.whole import begin_of, stored_by
from runtime.recompute.work import Deed, Work
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.hardware import Hardware
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.report import Report
from solvers.ir.schedule import Action, Schedule
from solvers.ir.solution import Limits, Solution
from solvers.planner import AnySolver, Checked, solve
from solvers.timeline.simulate import simulate

Moment = tuple[int, int, int]
"""(0, block, node): before the node of a forward pass begins, −1 before the block's call, and one more than the last
behind it; (0, blocks, n): once the program has begun n operators behind all of them; (1, −block, 0): before a backward
pass; (1, −block, 1 + n): in its n-th wait for a collective, or behind the n-th that keeps the host.

Before the next node, not behind the one before it: in between the program lets go of that one's temporaries.
"""
Asked = tuple[str, int]
"""What is done and of which op: a `Does`, "replay" or "drop"."""


class _Reading:
    """Reads a joint schedule, in the order of its list: what is asked at which moment, and what is never stored."""

    def __init__(self, step: Step, layers: Sequence[Layer], schedule: Schedule) -> None:
        self.step, self.layers = step, layers
        self.asked: dict[Moment, list[Asked]] = {}
        self.early: set[int] = set()
        self._earliest: dict[int, Moment] = {}
        self._now: Moment = (0, 0, -1)
        self._begun, self._first, self.parts = False, begin_of(step), other_results(step, layers)
        self._sent: set[int] = set()
        self._last = {action.op: at for at, action in enumerate(schedule.actions) if action.do == "recompute"}
        ops = {action.id: action.op for action in schedule.actions if action.do == "swap_in"}
        for at, action in enumerate(schedule.actions):
            for before in action.after:
                if before in ops and action.do in ("compute", "recompute", "collective_start"):
                    self._ask("arrive", ops[before])
            self._read(at, action)

    def _read(self, at: int, action: Action) -> None:
        op = action.op
        assert op is not None
        if action.do in ("compute", "collective_start"):
            self._begun = self._begun or op >= self._first
            self._now = max(self._now, self._behind(op))
        elif action.do == "recompute":
            self._begun = True
            self._ask("replay", op)
        elif action.do == "swap_out":
            self._sent.add(op)
            self._ask("out", op)
        elif action.do == "swap_in":
            self._ask("in", op)
        elif action.do == "collective_wait":
            pass  # what runs beside it stands before it, in the same moment
        elif op in self._sent:
            self._sent.discard(op)
            self._ask("release", op)
        elif self.step.places[op].kind == "unit":
            self._let_go(op, at)

    def _let_go(self, op: int, at: int) -> None:
        if not self._begun:
            self.early.add(op)
        elif self._last.get(op, -1) > at:
            self._ask("drop", op)

    def _ask(self, does: str, op: int | None) -> None:
        """Now, but not before what was asked of the same output before."""
        assert op is not None
        moment = max(self._now, self._earliest.get(op, self._now))
        if does in ("replay", "drop") and moment[0] and moment[2] and waits_within(self.layers[-moment[1]]):
            moment = (1, moment[1] + 1, 0)  # nothing runs again there
        if does != "replay":
            self._earliest[op] = moment
        self.asked.setdefault(moment, []).append((does, op))

    def _behind(self, op: int) -> Moment:
        """The moment behind an op's first run and right before the next one's."""
        place, following = self.step.places[op], self.step.places[op + 1 : op + 2]
        if following and following[0].kind == "unit" and following[0].index == 0:
            block = following[0].block
            if waits_before_units(self.layers[block]):
                return (0, block, units_begin(self.layers[block]))
        if place.kind == "unit":
            units = self.layers[place.block].units
            later = [unit.nodes[0] for unit in units[place.index + 1 :]]
            return (0, place.block, later[0] if later else behind_units(self.layers[place.block]))
        if place.kind == "output":
            if self.step.places[op + 1].kind in ("other", "behind"):
                return (0, place.block, len(self.layers[place.block].names))
            return (0, place.block + 1, -1)
        if place.kind in ("begin", "held", "wait", "part", "end"):
            wait = {"begin": 0, "held": place.index, "wait": place.index, "part": place.index + 1}.get(place.kind)
            layer = self.layers[place.block]
            waits = len(layer.backward_waits_us) or len(waits_within(layer))
            return (1, 1 - place.block, 0) if wait is None or wait >= waits else (1, -place.block, 1 + wait)
        if place.kind == "loss":
            return (1, 1 - len(self.layers), 0)
        if place == OTHER:
            return (0, len(self.layers) - 1, -1)
        if place.kind == "behind":
            return (0, len(self.layers), place.index)
        return self._now

    def move(self, does: Does, op: int) -> Move | None:
        """Of what the runtime can move: results of blocks' operators, and what blocks are given."""
        place = self.step.places[op]
        if place.kind == "unit":
            unit = self.layers[place.block].units[place.index]
            values = tuple(value for value, size in zip(unit.values, unit.sizes, strict=True) if size)
            return Move(does, place.block, values) if values else None
        block = given_to(place, len(self.layers))
        return (
            Move(does, block, given=self.layers[block].given)
            if block is not None and self.layers[block].given
            else None
        )


def joint_policies_of(step: Step, layers: Sequence[Layer], schedule: Schedule) -> list[BlockPolicy]:
    """What each block stores, and what moves and runs again when."""
    read = _Reading(step, layers, schedule)
    forward: list[dict[int, tuple[Move, ...]]] = [{} for _ in layers]
    behind: list[tuple[int, tuple[Move, ...]]] = []
    backward: list[dict[int, tuple[Deed | Move, ...]]] = [{} for _ in layers]
    for (phase, block, node), asked in sorted(read.asked.items()):
        deeds = _deeds(read, asked)
        if phase == 0 and block == len(layers):
            behind.append((node, _moves(deeds)))
        elif phase == 0:
            forward[block][node] = _moves(deeds)
        elif block <= 0:  # behind the first block's backward pass there is nothing to be done
            backward[-block][node] = deeds
    found = []
    for block, layer in enumerate(layers):
        before = backward[block].pop(0, ())
        in_waits = {number - 1: deeds for number, deeds in backward[block].items()}
        within = [(count, _moves(in_waits.pop(number, ()))) for number, count in enumerate(waits_within(layer))]
        last = tuple(behind) if block + 1 == len(layers) else ()
        work = Work(before, in_waits, forward[block], last, tuple(one for one in within if one[1]), layer.gathers)
        found.append(BlockPolicy(stored_by(step, layer, block, read.early), {}, {}, work))
    return found


def _moves(deeds: Sequence[Deed | Move]) -> tuple[Move, ...]:
    return tuple(deed for deed in deeds if isinstance(deed, Move))


def _deeds(read: _Reading, asked: Sequence[Asked]) -> tuple[Deed | Move, ...]:
    """In order; what is asked in a row of one block's units is one deed."""
    found: list[Deed | Move] = []
    row: list[Asked] = []
    for does, op in [*asked, ("", -1)]:
        block = read.step.places[op].block
        if row and (does, block) != (row[0][0], read.step.places[row[0][1]].block):
            others = [other for does, op in row if does == "drop" for other in read.parts.get(op, ())]
            found.append(units_deed(read.step, read.layers, row[0][0], [op for _, op in row], others))
            row = []
        if does in ("replay", "drop"):
            row.append((does, op))
        elif does:
            move = read.move(does, op)  # type: ignore[arg-type]
            found += [] if move is None else [move]
    return tuple(found)


class JointStep:
    """The decision about a whole step with a link to the host, as `whole.WholeStep` is about one without.

    `pass_us`: how long the pass takes by the plan, `pass_alone` the problem without what follows. What the plan makes
    that wait is in `problem`, and in its objective.
    """

    def __init__(self, solver: AnySolver, limits: Limits, device: torch.device) -> None:
        self._solver, self._limits, self._device = solver, limits, device
        self._hardware: Hardware | None = None
        self.step: Step | None = None
        self.problem: JointProblem | None = None
        self.answer: Checked | None = None
        self.policies: list[BlockPolicy] = []
        self.report: Report | None = None
        self.pass_alone: JointProblem | None = None
        self.pass_us: float | None = None
        self._end_launch_us = 0
        self.together: Together | None = None

    def meet(self, groups: Collection[dist.ProcessGroup]) -> None:
        """From here on decide with those with whom the blocks communicate; raises `InvalidInput` on several groups."""
        if self.together is None:
            self.together = together_with(groups)

    def decide(
        self, step: Step, layers: Sequence[Layer], budget_bytes: int, *, moves: bool = True
    ) -> Solution[JointPlan]:
        """The plan; raises `InfeasibleBudget` where there is none, and `InvalidInput` as `require_simulated`.

        Where `moves` is false nothing leaves for the host: what a further backward pass reads, too, would be back for
        good after the first. Ranks whose blocks communicate have one, and come here together.
        """
        require_simulated(self._device, layers)
        problem = self.asked(step, layers, budget_bytes)
        problem = problem if moves else replace(problem, host_budget_bytes=0)
        if self.together is not None:
            problem = self.together.problem(problem)
        if self.answer is None or problem != self.problem:
            ask = solve if self.together is None else self.together.solve
            answer = ask(self._solver, problem, self._limits)
            _require_plan(answer.solution, problem, len(layers))
            self.answer = answer
        assert self.answer.schedule is not None
        self.step, self.problem = step, problem
        self.policies = joint_policies_of(step, layers, self.answer.schedule)
        self.report = simulate(problem, self.answer.schedule)
        end = replace(problem.ops[-1], launch_us=self._end_launch_us)
        self.pass_alone = replace(problem, ops=(*problem.ops[:-1], end))
        self.pass_us = simulate(self.pass_alone, self.answer.schedule).makespan_us
        return self.answer.solution

    def asked(self, step: Step, layers: Sequence[Layer], budget_bytes: int) -> JointProblem:
        """What the solver is asked."""
        if self._hardware is None:
            self._hardware = by_direction(hardware_of(self._device))
        problem = joint_problem(step, layers, self._hardware, budget_bytes)
        self._end_launch_us = problem.ops[-1].launch_us
        return with_rest(problem, step, layers)

    def reserve_host(self) -> None:
        """Have page-locked what the plan takes of the host, so that no step waits for it; nothing without a plan."""
        if self.answer is not None:
            core.reserve_host(self.host_bytes, self._device)

    @property
    def host_bytes(self) -> int:
        """What the plan takes of the host at once, in blocks as the engine page-locks them; 0 without a plan."""
        if self.answer is None:
            return 0
        assert self.answer.schedule is not None
        requests: list[tuple[bool, int]] = []
        coming: dict[int, int] = {}  # swap-ins whose first reader has not begun, and which request they answer
        taken: dict[int, int] = {}
        for action in self.answer.schedule.actions:
            assert action.op is not None
            requests += [(False, coming.pop(before)) for before in action.after if before in coming]
            if action.do == "swap_out":
                taken[action.op] = sum(take for take, _ in requests)
                requests.append((True, action.bytes))
            elif action.do == "swap_in":
                coming[action.id] = taken[action.op]
        return core.arena_bytes(requests) if requests else 0

    @property
    def peak_bytes(self) -> int:
        """The most bytes in use by the plan."""
        assert self.report is not None
        return self.report.peak_bytes


def _require_plan(solution: Solution[JointPlan], problem: JointProblem, blocks: int) -> None:
    if solution.plan is not None:
        return
    least, budget_bytes = solution.least_budget_bytes, problem.budget_bytes
    if least is None:
        why = solution.reason or f"no plan was found for a budget of {budget_bytes} bytes: raise it or the limits"
    else:
        outside = problem.static_bytes + max(op.workspace_bytes for op in problem.ops)
        these = "this block" if blocks == 1 else f"these {blocks} blocks"
        why = (
            f"the budget is {budget_bytes} bytes, but any plan of {these} takes at least {least} for "
            f"what was measured so far, of which states and operators outside the blocks hold up to {outside}: "
            "raise the budget to that, or higher where later steps take more, or give other blocks="
        )
    raise InfeasibleBudget(why, least)
