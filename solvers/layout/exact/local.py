"""Local search over decisions, each judged by its exact lane time: single changes, exchanges, one chunk for a block."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from solvers.ir.layout import POLICIES, LayoutPlan, Policy
from solvers.layout.evaluate import Instance, activation_peak, device_bytes, evaluate, host_bytes, least_buffers


@dataclass
class Incumbent:
    """The best decision so far that fits, and what has been tried."""

    given: Instance
    plan: LayoutPlan | None = None
    end_us: int | None = None
    tried: dict[LayoutPlan, int | None] = field(default_factory=dict)

    def offer(self, plan: LayoutPlan, valid: bool = False) -> int | None:
        """The decision's end if it is valid (or known to be); it is kept where none is better."""
        if plan not in self.tried:
            if len(self.tried) >= _REMEMBERED:
                self.tried.clear()
            self.tried[plan] = evaluate(self.given, plan).end_us if valid or fits(self.given, plan) else None
        end = self.tried[plan]
        if end is not None and (self.end_us is None or end < self.end_us):
            self.plan, self.end_us = plan, end
        return end


def fits(given: Instance, plan: LayoutPlan) -> bool:
    """Whether a decision is valid: buffers, device and host memory."""
    problem = given.problem
    return (
        plan.buffers >= least_buffers(given, plan.persistent)
        and device_bytes(given, plan) <= problem.device_bytes
        and host_bytes(given, plan) <= problem.host_bytes
    )


def filled(given: Instance, persistent: Sequence[int], policies: Sequence[Policy]) -> LayoutPlan | None:
    """These choices with as many buffers as fit, and as there are chunks for; None where they do not fit."""
    problem = given.problem
    always = sum(problem.chunk_bytes + problem.chunks[chunk].persistent_bytes for chunk in persistent)
    room = problem.device_bytes - problem.fixed_bytes - always - activation_peak(given, policies)
    buffers = min(room // problem.chunk_bytes, len(problem.chunks) - len(persistent))
    if buffers < least_buffers(given, persistent):
        return None
    plan = LayoutPlan(persistent=tuple(persistent), buffers=buffers, policies=tuple(policies))
    return plan if host_bytes(given, plan) <= problem.host_bytes else None


def improve(
    incumbent: Incumbent,
    seed: int,
    done: Callable[[int], bool],
    pool: Sequence[LayoutPlan] = (),
    slowly: int = 0,
) -> None:
    """Improve until `done(rounds)`, by annealing again and again, each time longer, up to a limit.

    It begins with the first of `pool`, where given, and goes on from the best decision or one of `pool`, which have to
    fit. Before all that, one annealing of `slowly` rounds from where nearly everything is taken, if they are enough to
    cool down.
    """
    if incumbent.plan is None:
        return
    chance = random.Random(seed)
    rounds = 0
    if slowly >= _SLOW:
        rounds = _anneal(incumbent, incumbent.plan, chance, done, rounds, slowly, _HOT)
    here, length = next(iter(pool), incumbent.plan), _SHORTEST
    while not done(rounds):
        rounds = _anneal(incumbent, here, chance, done, rounds, length)
        here, length = chance.choice((incumbent.plan, *pool)), min(2 * length, _LONGEST)


def _anneal(
    incumbent: Incumbent,
    here: LayoutPlan,
    chance: random.Random,
    done: Callable[[int], bool],
    rounds: int,
    length: int,
    heats: tuple[float, float] = (1e-3, 3e-6),
) -> int:
    """So many rounds: a step that worsens is taken the likelier the less it does, and less and less. Returns rounds.

    `heats`: first and last temperature, as shares of the step time; geometric in between.
    """
    at, (warmest, coldest) = incumbent.offer(here), heats
    for step in range(length):
        if done(rounds):
            break
        rounds += 1
        plan = _neighbour(incumbent.given, here, chance)
        end = None if plan is None else incumbent.offer(plan, valid=True)
        if plan is None or end is None:
            continue
        heat = warmest * (coldest / warmest) ** (step / length)
        if at is None or end <= at or chance.random() < math.exp((at - end) / (heat * end)):
            here, at = plan, end
    return rounds


_REMEMBERED = 50_000
"""Decisions remembered with their times (some 50 MB) before all are forgotten."""
_SHORTEST, _LONGEST = 2_000, 32_000
"""Rounds of the first annealing, and of the longest: each takes twice as many rounds as the one before."""
_SLOW, _HOT = 8_000, (3e-3, 5e-5)
"""The fewest rounds of an annealing that begins hot, and its first and last temperature."""


def _neighbour(given: Instance, plan: LayoutPlan, chance: random.Random) -> LayoutPlan | None:
    """One to three random changes, then as many buffers as fit (or, rarely, fewer)."""
    persistent, policies = set(plan.persistent), list(plan.policies)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
        chance.choice(_MOVES)(given, persistent, policies, chance)
    changed = filled(given, sorted(persistent), policies)
    if changed is not None and changed.buffers and chance.random() < 0.1:
        fewer = LayoutPlan(
            persistent=changed.persistent, buffers=chance.randrange(changed.buffers), policies=changed.policies
        )
        return fewer if fits(given, fewer) else changed
    return changed


def _choices(given: Instance) -> list[int]:
    return [number for number, block in enumerate(given.problem.blocks) if block.choice]


def _other_policy(given: Instance, persistent: set[int], policies: list[Policy], chance: random.Random) -> None:
    """Another policy for a block."""
    places = _choices(given)
    if places:
        place = chance.choice(places)
        policies[place] = chance.choice([policy for policy in POLICIES if policy != policies[place]])


def _exchange(given: Instance, persistent: set[int], policies: list[Policy], chance: random.Random) -> None:
    """Two blocks exchange their policies, near ones as often as any."""
    places = _choices(given)
    if len(places) < 2:
        return
    one = chance.randrange(len(places))
    other = one + chance.choice((-2, -1, 1, 2)) if chance.random() < 0.5 else chance.randrange(len(places))
    if 0 <= other < len(places):
        here, there = places[one], places[other]
        policies[here], policies[there] = policies[there], policies[here]


def _other_chunk(given: Instance, persistent: set[int], policies: list[Policy], chance: random.Random) -> None:
    """A chunk becomes persistent, or no longer is."""
    persistent ^= {chance.randrange(len(given.problem.chunks))}


def _exchange_chunks(given: Instance, persistent: set[int], policies: list[Policy], chance: random.Random) -> None:
    """A chunk is persistent instead of another."""
    others = [chunk for chunk in range(len(given.problem.chunks)) if chunk not in persistent]
    if persistent and others:
        persistent.remove(chance.choice(sorted(persistent)))
        persistent.add(chance.choice(others))


def _move_along(given: Instance, persistent: set[int], policies: list[Policy], chance: random.Random) -> None:
    """A block's policy goes to another place; those between move on by one."""
    places = _choices(given)
    if not places:
        return
    one, other = chance.randrange(len(places)), chance.randrange(len(places))
    order = [policies[place] for place in places]
    order.insert(other, order.pop(one))
    for place, policy in zip(places, order, strict=True):
        policies[place] = policy


_MOVES = (_other_policy, _other_policy, _exchange, _exchange, _other_chunk, _exchange_chunks, _move_along)


def starts(given: Instance) -> Iterator[LayoutPlan]:
    """Decisions to begin from: the first chunks persistent; one policy for the fewest first blocks that let it fit.

    Or policies that take turns, in short words: where swap-outs take longer than forwards, only some fit between.
    """
    places, chunks = _choices(given), len(given.problem.chunks)
    most = max(3, min(64, _WORK // (chunks + len(given.problem.blocks))))
    for persist in range(0, chunks + 1, 1 + chunks // most):
        for policy in POLICIES[1:]:
            for count in range(0, len(places) + 1, 1 + len(places) // most):
                plan = _filled_by(given, persist, dict.fromkeys(places[:count], policy))
                if plan is not None:
                    yield plan
                    break
        for word in _WORDS:
            turns = {place: word[number % len(word)] for number, place in enumerate(places)}
            plan = _filled_by(given, persist, turns)
            if plan is not None:
                yield plan


def _filled_by(given: Instance, persist: int, choices: dict[int, Policy]) -> LayoutPlan | None:
    """The first chunks persistent, these policies, and `keep` for the other blocks."""
    return filled(given, range(persist), [choices.get(k, "keep") for k in range(len(given.problem.blocks))])


def _rotated(word: tuple[Policy, ...]) -> list[tuple[Policy, ...]]:
    return [word[turn:] + word[:turn] for turn in range(len(word))]


_WORDS = [
    word
    for length in (2, 3, 4)
    for word in product(POLICIES, repeat=length)
    if len(set(word)) > 1 and word == min(_rotated(word))
]
"""Repeating patterns of policies, up to four blocks long; patterns that differ only by where they begin count once."""
_WORK = 20_000
"""Up to 64 counts of chunks, and of blocks, are tried; fewer where chunks and blocks together times counts are more."""
