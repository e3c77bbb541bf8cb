"""Judge of schedules of swap plans: what happens before what, what memory each op finds (README).

A schedule is right if it is right however long its actions take: only lane order and `after` count, never durations.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from solvers.check.order import HappensBefore
from solvers.check.swap.judge import host_violations
from solvers.check.verdict import Verdict
from solvers.ir.fields import TensorId
from solvers.ir.schedule import Action, Schedule
from solvers.ir.swap import SwapProblem, SwapTensor

LANE = {"compute": "0.compute", "release": "0.compute", "swap_out": "0.out", "swap_in": "0.in"}
"""Where each kind of action of a swap schedule runs."""


def judge_swap_schedule(problem: SwapProblem, schedule: Schedule) -> Verdict:
    """Judge a schedule: data present where computed, reuse after release, memory within budgets, nothing leaked."""
    return Verdict(tuple(_form(problem, schedule) or _Judge(problem, schedule).violations()))


def _form(problem: SwapProblem, schedule: Schedule) -> list[str]:
    """Known actions on their lanes, with ops and tensors of the problem; every op computed once, in order."""
    sizes = {tensor.id: tensor.bytes for tensor in problem.tensors}
    violations = [fault for action in schedule.actions for fault in _faults(problem, action, sizes)]
    computed = [action.op for action in schedule.actions if action.do == "compute"]
    expected = list(range(len(problem.ops)))
    if not violations and computed != expected:
        place = next((j for j, (found, op) in enumerate(zip(computed, expected, strict=False)) if found != op), None)
        if place is None:
            violations.append(f"the compute lane computes {len(computed)} ops, but the problem has {len(expected)}")
        else:
            violations.append(f"the compute lane computes op {computed[place]} where op {place} is due")
    return violations


def _faults(problem: SwapProblem, action: Action, sizes: Mapping[TensorId, int]) -> list[str]:
    place = f"action {action.id}"
    if action.do not in LANE:
        return [f"{place} does {action.do}, but a swap schedule has only {', '.join(LANE)}"]
    faults = []
    if action.lane != LANE[action.do]:
        faults.append(f"{place} does {action.do} on lane {action.lane}, but it belongs on {LANE[action.do]}")
    if action.op is None or action.op >= len(problem.ops):
        faults.append(f"{place} belongs to op {action.op}, but ops are 0…{len(problem.ops) - 1}")
    unknown = [name for name in action.data if name not in sizes]
    if unknown or (not action.data) != (action.do == "compute"):
        faults.append(f"{place} does {action.do} with data {list(action.data)}, but a swap names the problem's tensors")
    elif action.do != "compute" and action.bytes != sum(sizes[name] for name in action.data):
        size = sum(sizes[name] for name in action.data)
        faults.append(f"{place} does {action.do} of {action.bytes} bytes, but its tensors have {size}")
    return faults


class _Judge:
    """A well-formed schedule, its actions found by op and by tensor."""

    def __init__(self, problem: SwapProblem, schedule: Schedule) -> None:
        self.problem = problem
        self.before = HappensBefore(schedule)
        self.lane = [action for action in schedule.actions if action.lane == LANE["compute"]]
        self.position = {action.op: n for n, action in enumerate(self.lane) if action.do == "compute"}
        self.of_tensor: dict[TensorId, dict[str, list[Action]]] = defaultdict(lambda: defaultdict(list))
        for action in schedule.actions:
            for name in action.data:
                self.of_tensor[name][action.do].append(action)

    def violations(self) -> list[str]:
        found = self._release_places()
        swapped: list[tuple[SwapTensor, Action, Action]] = []
        for tensor in self.problem.tensors:
            actions = self.of_tensor.get(tensor.id)
            if actions is None:
                continue
            counts = {do: len(actions[do]) for do in ("swap_out", "release", "swap_in")}
            if set(counts.values()) != {1}:
                listed = ", ".join(f"{do} {count} times" for do, count in counts.items())
                found.append(f"tensor {tensor.id!r} has {listed}, but a swapped tensor has each once")
                continue
            out, release, back = (actions[do][0] for do in counts)
            found += self._tensor(tensor, out, release, back)
            swapped.append((tensor, release, back))
        return found + self._memory(swapped) + host_violations(self.problem, [tensor for tensor, _, _ in swapped])

    def _release_places(self) -> list[str]:
        """A release stands right before the op that it names (further releases between)."""
        found: list[str] = []
        due = None
        for action in reversed(self.lane):
            if action.do == "compute":
                due = action.op
            elif action.do == "release" and action.op != due:
                found.append(f"action {action.id} releases before op {due}, but says before op {action.op}")
        return found[::-1]

    def _tensor(self, tensor: SwapTensor, out: Action, release: Action, back: Action) -> list[str]:
        """Out after its last forward use, released after it is out, back after its memory is there, used after that."""
        first, last = tensor.last_forward_use, tensor.first_backward_use
        op = back.op
        if out.op != first or op is None or not first < op <= last:
            return [
                f"tensor {tensor.id!r} leaves after op {out.op} and returns before op {op}, but may only leave "
                f"after op {first} and return before ops {first + 1}…{last}"
            ]
        granted = self.lane[self.position[op] - 1]
        orders: Sequence[tuple[Action, Action, str]] = (
            (self._compute(first), out, f"its swap-out does not wait for op {first}, its last forward use"),
            (out, release, "its memory is released before its swap-out has ended"),
            (release, back, "its swap-in does not wait for its release"),
            (granted, back, f"its swap-in does not wait for action {granted.id}, so that op {op}'s memory may lack"),
            (back, self._compute(last), f"op {last}, its first backward use, does not wait for its swap-in"),
        )
        return [f"tensor {tensor.id!r}: {text}" for one, two, text in orders if not self.before(one, two)]

    def _compute(self, op: int) -> Action:
        return self.lane[self.position[op]]

    def _memory(self, swapped: list[tuple[SwapTensor, Action, Action]]) -> list[str]:
        """What is released before op j and comes back only before a later op is absent during op j."""
        absent = [0] * (len(self.problem.ops) + 1)
        for tensor, release, back in swapped:
            if release.op is not None and back.op is not None:
                absent[release.op] += tensor.bytes
                absent[back.op] -= tensor.bytes
        found, gone = [], 0
        for j, memory in enumerate(self.problem.memory_bytes):
            gone += absent[j]
            if memory - gone > self.problem.budget_bytes:
                found.append(f"op {j} finds {memory - gone} bytes in use, budget {self.problem.budget_bytes}")
        return found
