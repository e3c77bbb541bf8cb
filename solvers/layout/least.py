"""The least device and host memory of a layout problem: what a problem without a valid decision lacks.

With nothing persistent the device needs least: a persistent chunk saves one buffer at most and takes that much itself,
states besides. So the least is that of the best policies and the least buffers, unless the host has too little room for
all chunks; then some must persist, at least as many as the largest of them, and those whose states are smallest for
what they free. Each of them saves one buffer at most, and the others need one: what they take beyond, is added.

One file: the proof of each bound is read beside the next one that it builds on.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import ceil

from solvers.ir.fields import LARGEST
from solvers.ir.layout import LayoutBlock, LayoutChunk, LayoutProblem
from solvers.layout.evaluate import Instance, least_buffers

CASES = 300_000
"""The most partial policies that are examined where blocks differ: half a second."""


_Case = tuple[int, int, int, int]


@dataclass(frozen=True, order=True)
class Peak:
    """An activation peak that no policies go below (`exact`: some reach it), and the bytes that those swap."""

    bytes: int
    exact: bool
    swapped_bytes: int


@dataclass(frozen=True)
class Least:
    """What memory a valid decision needs.

    `roomy_bytes`: on a device whose host has room for everything; `peak` its activations.
    """

    given: Instance

    @property
    def _problem(self) -> LayoutProblem:
        return self.given.problem

    @cached_property
    def peak(self) -> Peak:
        """The least activation peak of any policies."""
        return least_peak(self._problem)

    @cached_property
    def buffers(self) -> int:
        """The least buffers where nothing persists."""
        return least_buffers(self.given, ())

    @cached_property
    def roomy_bytes(self) -> int:
        """The least on the device where the host has room for all chunks."""
        return self._problem.fixed_bytes + self.buffers * self._problem.chunk_bytes + self.peak.bytes

    @property
    def away_bytes(self) -> int:
        """What the host holds of all chunks together."""
        return sum(chunk.host_bytes for chunk in self._problem.chunks)

    @property
    def is_exact(self) -> bool:
        """Whether `device_bytes` is enough for some decision."""
        return self.peak.exact and self.away_bytes + self.peak.swapped_bytes <= self._problem.host_bytes

    @property
    def device_bytes(self) -> int:
        """A lower bound on the device bytes of any decision, with the host as it is."""
        return self.roomy_bytes + self._persistent_bytes(self.away_bytes - self._problem.host_bytes)

    def host_bytes(self, device_bytes: int) -> int:
        """A lower bound on the host bytes of any decision that needs at most `device_bytes`."""
        return max(0, self.away_bytes - self._freed_bytes(device_bytes - self.roomy_bytes))

    def _persistent_bytes(self, host: int) -> int:
        """The least device bytes of persistent chunks that free `host` host bytes, less the buffers they save."""
        if host <= 0:
            return 0
        count = bisect_left(self._most_freed, host)
        return self._places_bytes(count) + max(self._least_states[count], self._states_for(host))

    def _freed_bytes(self, device: int) -> int:
        """The most host bytes freed by chunks that take `device` bytes, less the buffers that they save."""
        if device < 0:
            return 0
        counts = range(len(self._least_states))
        after = bisect_right(counts, device, key=lambda count: self._places_bytes(count) + self._least_states[count])
        return min(self._most_freed[after - 1], self._host_for(device))

    def _places_bytes(self, persistent: int) -> int:
        """A lower bound on the bytes of `persistent` chunks and the buffers beside them, less those of `buffers`.

        Each saves one buffer at most, and where some chunk does not persist there is one buffer.
        """
        others = persistent < len(self._problem.chunks)
        return max(0, persistent + others - self.buffers) * self._problem.chunk_bytes

    @cached_property
    def _most_freed(self) -> list[int]:
        """The most that n chunks free on the host, for n = 0, 1, …"""
        return list(accumulate(sorted((c.host_bytes for c in self._on_host), reverse=True), initial=0))

    @cached_property
    def _least_states(self) -> list[int]:
        """The least states on the device of n chunks that free something, for n = 0, 1, …"""
        return list(accumulate(sorted(c.persistent_bytes for c in self._on_host), initial=0))

    @property
    def _on_host(self) -> list[LayoutChunk]:
        return [chunk for chunk in self._problem.chunks if chunk.host_bytes]

    def _by_worth(self) -> list[tuple[int, int]]:
        """States on the device and bytes on the host of chunks, those first that free most for their states."""
        pairs = Counter((c.persistent_bytes, c.host_bytes) for c in self._on_host)
        alike = [(count * on_device, count * on_host) for (on_device, on_host), count in pairs.items()]
        return sorted(alike, key=lambda pair: Fraction(*pair))

    def _states_for(self, host: int) -> int:
        """The least states of persistent chunks that free `host` bytes on the host, fractions of chunks allowed."""
        states = Fraction(0)
        for on_device, on_host in self._by_worth():
            taken = min(host, on_host)
            states += Fraction(on_device * taken, on_host)
            host -= taken
        return ceil(states)

    def _host_for(self, states: int) -> int:
        """The most host bytes freed by persistent chunks with `states` bytes of states, fractions of chunks allowed."""
        host = Fraction(0)
        for on_device, on_host in self._by_worth():
            taken = min(states, on_device)
            host += Fraction(on_host * taken, on_device) if on_device else on_host
            states -= taken
        return int(host)


def least_peak(problem: LayoutProblem) -> Peak:
    """The least activation peak of any policies: exact where blocks are alike, and elsewhere if the walk finishes."""
    earliest = _Earliest.of(problem)
    most = _peak_without_swaps(problem)
    least = earliest.least(_peak_floor(problem), most)
    if earliest.is_exact:
        return Peak(least, True, earliest.fewest(least) * (earliest.adds + earliest.saves))
    return _walked(problem, least, most)


@dataclass(frozen=True)
class _Earliest:
    """Policies that swap as early as a limit lets them: where blocks are alike, no others leave more room.

    What is swapped `adds` bytes to what each of the `interval` blocks behind it finds, and `saves` bytes of it later.
    Take any policies within the limit. Our n-th swap is no later than theirs: where they swap next, each of ours so far
    is no later than theirs, so it adds nothing where theirs saves, and what they can do we can. Ours stay within the
    limit: where one of them adds, that was looked at before; elsewhere all of them save, and they are no fewer.
    Where blocks differ, the least of `adds` and the most of `saves` bound every peak from below.

    By block: `needs`, what it needs and finds where nothing is swapped; `more`, what it needs besides if it is swapped
    itself (None: it cannot be).
    """

    needs: list[int]
    more: list[int | None]
    adds: int
    saves: int
    interval: int
    is_exact: bool

    @staticmethod
    def of(problem: LayoutProblem) -> "_Earliest":
        blocks = problem.blocks
        own = [_own(block, _stays(block)) for block in blocks]
        before = accumulate((_stays(block) for block in blocks), initial=0)
        kinds = {(block.activation_bytes, _stays(block)) for block in blocks if block.choice}
        return _Earliest(
            needs=[found + needed for found, needed in zip(before, own, strict=False)],
            more=[
                _own(block, block.activation_bytes) - needed if block.choice else None
                for block, needed in zip(blocks, own, strict=True)
            ],
            adds=min((size - stays for size, stays in kinds), default=0),
            saves=max((stays for _, stays in kinds), default=0),
            interval=min(problem.interval, len(blocks)),
            is_exact=len(kinds) <= 1,
        )

    def least(self, least: int, most: int) -> int:
        """The least limit that they stay within, from `least` on; they do within `most`."""
        return least + bisect_left(range(most - least), True, key=lambda more: self.within(least + more))

    def fewest(self, limit: int) -> int:
        """The fewest swaps with which they stay within the limit: the first ones of all."""
        return bisect_left(range(len(self.needs)), True, key=lambda most: self.within(limit, most))

    def within(self, limit: int, most: int | None = None) -> bool:
        """Whether they stay within the limit, with at most `most` swaps.

        `needs` leaves out what the swaps add. `ahead` are the next blocks, but for those that need no more than a later
        one: its first one needs most.
        """
        needs: list[int] = []
        ahead: deque[int] = deque()
        swaps = 0
        for block in range(-self.interval, len(self.needs)):
            if block + self.interval < len(self.needs):
                need = self.needs[len(needs)] - (self.adds + self.saves) * swaps
                while ahead and needs[ahead[-1]] <= need:
                    ahead.pop()
                ahead.append(len(needs))
                needs.append(need)
            if block < 0:
                continue
            if ahead[0] == block:
                ahead.popleft()
            found, more = needs[block] + self.adds * swaps, self.more[block]
            if found > limit:
                return False
            if more is not None and found + more <= limit and swaps != most:
                swaps += not ahead or needs[ahead[0]] + self.adds * (swaps + 1) <= limit
        return True


def _walked(problem: LayoutProblem, least: int, most: int) -> Peak:
    """The least peak between these, by halving; where there are too many cases, no more than it.

    A walk may look at half of the cases that are left. If it gives up, lower limits may still be ruled out.
    """
    best: Peak | None = Peak(most, True, 0)
    left = CASES
    while least < most:
        middle = (least + most) // 2
        walk = _Walk(problem, middle, left // 2)
        found = walk.best()
        if walk.gave_up:
            best, most = None, middle
        elif found is None:
            least = min(most, walk.beyond)
        else:
            best, most = found, found.bytes
        left -= walk.looked_at
    return best or Peak(least, False, 0)


class _Walk:
    """From block to block with all policies that stay within an activation peak; gives up beyond a number of cases.

    Of the blocks before, all that matters is which of the last `interval` ones are swapped, since their bytes still
    count, and what the others hold: of two cases alike in the first, the one that holds less goes on. A case is a
    number whose bits say which of these are swapped, with (bytes that the others hold, peak, bytes swapped in all,
    bytes of these). `beyond` is the least peak of what was left out: where nothing is left, none have a lower one.
    """

    def __init__(self, problem: LayoutProblem, limit: int, most: int) -> None:
        self.problem, self.limit, self.most = problem, limit, most
        self.oldest = 1 << (min(problem.interval, len(problem.blocks)) - 1)
        self.beyond, self.looked_at = LARGEST, 0

    @property
    def gave_up(self) -> bool:
        """Whether there were too many cases."""
        return self.looked_at > self.most

    def best(self) -> Peak | None:
        """The lowest peak among the policies that went through; None where there is none."""
        cases = {0: (0, 0, 0, 0)}
        for number in range(len(self.problem.blocks)):
            self.looked_at += len(cases)
            if self.gave_up:
                return None
            cases = self._after(number, cases)
        return min((Peak(peak, True, swapped) for _, peak, swapped, _ in cases.values()), default=None)

    def _after(self, number: int, cases: dict[int, _Case]) -> dict[int, _Case]:
        """The cases with this block."""
        block, interval = self.problem.blocks[number], self.problem.interval
        options = [(stays, leaves, _own(block, stays + leaves)) for stays, leaves in _choices(block)]
        gone = self.problem.blocks[number - interval].activation_bytes if number >= interval else 0
        found: dict[int, _Case] = {}
        for recent, (held, peak, swapped, moving) in cases.items():
            later = moving - (gone if recent & self.oldest else 0)
            shifted = (recent & (self.oldest - 1)) << 1
            for stays, leaves, own in options:
                needs = held + moving + own
                if needs > self.limit:
                    self.beyond = min(self.beyond, needs)
                    continue
                case = (held + stays, max(peak, needs), swapped + leaves, later + leaves)
                key = shifted | (leaves > 0)
                found[key] = min(found.get(key, case), case)
        return found


def _stays(block: LayoutBlock) -> int:
    """The least that a block holds without being swapped."""
    return min(block.activation_bytes, block.input_bytes) if block.choice else block.activation_bytes


def _choices(block: LayoutBlock) -> list[tuple[int, int]]:
    """What stays of a block, and what leaves: nothing, or all that it saves."""
    return [(_stays(block), 0), (0, block.activation_bytes)] if block.choice else [(_stays(block), 0)]


def _own(block: LayoutBlock, stays: int) -> int:
    """The most that a block needs while it runs, where its forward pass leaves that much."""
    return max(stays + block.forward_transient_bytes, block.activation_bytes + block.backward_transient_bytes)


def _peak_without_swaps(problem: LayoutProblem) -> int:
    held = peak = 0
    for block in problem.blocks:
        peak = max(peak, held + _own(block, _stays(block)))
        held += _stays(block)
    return peak


def _peak_floor(problem: LayoutProblem) -> int:
    """Every block at its least in every pass: of one that may be swapped nothing is left `interval` blocks later."""
    blocks, floor, fixed = problem.blocks, 0, 0
    for number, block in enumerate(blocks):
        gone = number - 1 - problem.interval
        fixed += 0 if gone < 0 or blocks[gone].choice else blocks[gone].activation_bytes
        near = sum(_stays(blocks[other]) for other in range(max(0, gone + 1), number))
        floor = max(floor, fixed + near + _own(block, _stays(block)))
    return floor
