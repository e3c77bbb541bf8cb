"""A policy of selective checkpointing as a decision: what PyTorch does under it, stage by stage (README, "Policies").

Names mean ops of the forward pass; its ops run once, and those of the backward pass are never computed again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise

from solvers.ir.errors import InvalidInput
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.names import unknown
from solvers.ir.policy import OpName, Policy
from solvers.joint.draft import Draft, plan_of
from solvers.joint.given import given_of


@dataclass(frozen=True)
class Read:
    """A policy in this problem's numbers: the first op of the backward pass, what is computed again, the regions."""

    backward: int
    recomputed: frozenset[int]
    regions: tuple[range, ...]


def plan_of_policy(problem: JointProblem, policy: Policy) -> JointPlan:
    """The decision: an op runs again in the first stage of the backward pass that needs its output, which then stays.

    Whether it is valid is for the judge to say. Raises `InvalidInput` where the policy names what is not there.
    """
    return plan_of(given_of(problem), Draft(_again(problem, read_policy(problem, policy))))


def read_policy(problem: JointProblem, policy: Policy) -> Read:
    """The policy with its names looked up; raises `InvalidInput` in a sentence."""
    names = _Names(problem, _backward(problem, policy), policy)
    saved, recomputed = names.all("saved", policy.saved), names.all("recomputed", policy.recomputed)
    both = saved & recomputed
    if both:
        op = min(both)
        raise InvalidInput(f"op {op} ({problem.ops[op].name}) is both saved and recomputed: name it in one of them")
    if policy.others == "recomputed":
        recomputed |= set(range(names.backward)) - saved
    regions = tuple(names.region(number) for number in range(len(policy.regions)))
    for first, second in pairwise(sorted(regions, key=lambda region: region.start)):
        if second.start < first.stop:
            raise InvalidInput(f"two regions both have op {second.start}: take it out of one of them")
    if regions:
        recomputed &= set().union(*regions) - _handed_on(problem, names.backward, regions)
    return Read(names.backward, frozenset(recomputed), regions)


def _handed_on(problem: JointProblem, backward: int, regions: tuple[range, ...]) -> set[int]:
    """What ops of the forward pass read from outside their region: checkpoints save their inputs."""
    region_of = {op: region for region in regions for op in region}
    return {
        i
        for number, op in enumerate(problem.ops[:backward])
        for i in op.inputs
        if i in region_of and region_of[i] is not region_of.get(number)
    }


def _backward(problem: JointProblem, policy: Policy) -> int:
    """The first op of the backward pass; refuses one before which there is nothing."""
    backward = _first_backward(problem, policy)
    if backward == 0:
        raise InvalidInput(
            f"the backward pass begins with op 0 ({problem.ops[0].name}), so there is no forward pass whose outputs a "
            "policy could save: correct backward_from"
        )
    return backward


def _first_backward(problem: JointProblem, policy: Policy) -> int:
    """As told, else from where on ops run again, else the first so called."""
    asked = policy.backward_from
    if isinstance(asked, int):
        if not 0 <= asked < len(problem.ops):
            raise InvalidInput(f"backward_from is {asked}, but the ops are 0…{len(problem.ops) - 1}: correct it")
        return asked
    pattern = "*backward*" if asked is None else asked
    if asked is None and problem.replays_from:
        return problem.replays_from
    for number, op in enumerate(problem.ops):
        if asked is not None and (op.name == asked or fnmatchcase(op.name, pattern)):
            return number
        if asked is None and "backward" in op.name.lower():
            return number
    if asked is None:
        raise InvalidInput(f"no op of {problem.name} is called backward: say in backward_from where that pass begins")
    raise unknown("op", asked, {op.name for op in problem.ops})


class _Names:
    """The forward pass by number, name and pattern."""

    def __init__(self, problem: JointProblem, backward: int, policy: Policy) -> None:
        self.problem, self.backward, self.policy = problem, backward, policy
        self.by_name: dict[str, set[int]] = {}
        for number, op in enumerate(problem.ops[:backward]):
            for name in {op.name, *_parts(op.name)}:
                self.by_name.setdefault(name, set()).add(number)

    def all(self, place: str, names: tuple[OpName, ...]) -> set[int]:
        """The ops that these mean."""
        return {number for name in names for number in self._meant(place, name)}

    def region(self, number: int) -> range:
        """A region of the forward pass."""
        first, last = (min(self._ops(f"regions[{number}]", name)) for name in self.policy.regions[number])
        if first > last:
            raise InvalidInput(f"regions[{number}] begins at op {first}, behind its end at op {last}: exchange them")
        return range(first, last + 1)

    def _meant(self, place: str, name: OpName) -> set[int]:
        nodes = self.policy.nodes
        if isinstance(name, int) and nodes is not None:
            if not 0 <= name < len(nodes):
                raise InvalidInput(f"{place} has {name}, but nodes are 0…{len(nodes) - 1}: correct the number")
            name = nodes[name]
        return self._ops(place, name)

    def _ops(self, place: str, name: OpName) -> set[int]:
        if isinstance(name, int):
            if not 0 <= name < self.backward:
                last = self.backward - 1
                raise InvalidInput(f"{place} has op {name}, but the forward pass has ops 0…{last}: correct the number")
            return {name}
        found = self.by_name.get(name)
        if found is None:
            found = {op for known, ops in self.by_name.items() if fnmatchcase(known, name) for op in ops}
        if not found:
            raise unknown("op of the forward pass", name, self.by_name)
        return found


def _parts(name: str) -> list[str]:
    """The names of the graph's ops that a problem's op stands for."""
    return name.removesuffix(" (saved)").split(" + ")


def _again(problem: JointProblem, read: Read) -> list[set[int]]:
    """What each stage computes again: what it needs and is not there yet; of a region, as much as is needed."""
    again: list[set[int]] = [set() for _ in problem.ops]
    done: set[int] = set()
    region_of = {op: region for region in read.regions for op in region}
    for stage in range(read.backward, len(problem.ops)):
        stack = list(problem.ops[stage].inputs)
        while stack:
            op = stack.pop()
            if op in done or op not in read.recomputed:
                continue
            region = region_of.get(op)
            run = {op} if region is None else set(_region(problem, read, region))
            again[stage] |= run - done
            done |= run
            stack += [i for ran in run for i in problem.ops[ran].inputs]
    return again


def _region(problem: JointProblem, read: Read, region: range) -> Iterator[int]:
    """The ops that a region computes again: up to the last one that the backward pass reads."""
    used = {i for op in problem.ops[read.backward :] for i in op.inputs if i in region and i in read.recomputed}
    return (op for op in region if op in read.recomputed and op <= max(used, default=-1))
