"""Judge of layout schedules (formats.md 11.10): data, buffers, gradients and memory by order, never by durations."""

from collections import Counter
from itertools import pairwise

from solvers.check.layout.forms import COMM, COMPUTE, OUT, form, number_of
from solvers.check.order import HappensBefore
from solvers.check.verdict import Verdict
from solvers.ir.layout import LayoutProblem
from solvers.ir.schedule import Action, Schedule


def judge_layout_schedule(problem: LayoutProblem, schedule: Schedule) -> Verdict:
    """Passes in order, chunks there while they are asked for, gradients exchanged and away, updates, swaps, memory."""
    faults = [fault for action in schedule.actions for fault in form(problem, action)]
    faults = faults or _passes(problem, schedule)
    return Verdict(tuple(faults or _Judge(problem, schedule).violations()))


def _passes(problem: LayoutProblem, schedule: Schedule) -> list[str]:
    """What lies there first, then every pass once, in order; a block is computed again right before its backward."""
    lane = [action for action in schedule.actions if action.lane == COMPUTE]
    if not lane or lane[0].op is not None or sum(action.op is None for action in schedule.actions) > 1:
        return ["the compute lane does not begin with the one load of what lies on the device throughout"]
    if Counter(lane[0].data).most_common(1)[0][1:] > (1,):
        return [f"action {lane[0].id} names data twice"]
    passes = [action.op for action in lane if action.do == "compute"]
    if passes != list(range(2 * len(problem.blocks))):
        return [f"the passes are {passes[:20]}…, but each is due once, in order"]
    found = []
    for action, following in zip(lane, [*lane[1:], None], strict=True):
        if action.do == "recompute" and (following is None or (following.do, following.op) != ("compute", action.op)):
            found.append(f"action {action.id} computes again for pass {action.op}, but the pass does not follow")
        if action.do == "recompute" and not problem.blocks[number_of(action)].choice:
            found.append(f"action {action.id} computes block {number_of(action)} again, which has no choice")
    return found


class _Judge:
    """A well-formed schedule whose passes are in order; by chunk and by block the story of each, in order."""

    def __init__(self, problem: LayoutProblem, schedule: Schedule) -> None:
        self.problem, self.before = problem, HappensBefore(schedule)
        self.count, self.order = len(problem.blocks), schedule.order()
        lane = [action for action in schedule.actions if action.lane == COMPUTE]
        self.first: Action = lane[0]
        self.persistent = {int(str(name)[6:]) for name in lane[0].data if str(name).startswith("chunk ")}
        self.buffers = {name for name in lane[0].data if str(name).startswith("buffer ")}
        self.ends = [action for action in lane if action.do == "compute"]
        again = {action.op: action for action in lane if action.do == "recompute"}
        self.starts = [again.get(action.op, action) for action in self.ends]
        self.checkpointed = {number_of(action) for action in again.values()}
        self.away: dict[int, tuple[Action, Action]] = {}
        self.gathered: dict[int, list[Action]] = {}
        for action in self.order:
            if action.lane == COMM and str(action.data[0]).startswith("chunk "):
                self.gathered.setdefault(number_of(action), []).append(action)
        self.asking: list[list[int]] = [[] for _ in problem.chunks]
        for number, end in enumerate(self.ends):
            for chunk in problem.blocks[number_of(end)].chunks:
                self.asking[chunk].append(number)

    def violations(self) -> list[str]:
        """All faults: first what is there at all, then what waits for what, then memory."""
        found = self._static() or [*self._buffers(), *self._gradients(), *self._swaps()]
        return found or self._memory()

    def _static(self) -> list[str]:
        """The first action tells the bytes of what it names, a forward pass those of what its block keeps."""
        beside = sum(self.problem.chunks[chunk].persistent_bytes for chunk in self.persistent)
        size = (len(self.persistent) + len(self.buffers)) * self.problem.chunk_bytes + beside
        told = [(self.first, size)]
        for number, block in enumerate(self.problem.blocks):
            kept = block.input_bytes if number in self.checkpointed else block.activation_bytes
            told.append((self.ends[number], kept))
        return [
            f"action {action.id} says {action.bytes} bytes, but what it names takes {size}"
            for action, size in told
            if action.bytes != size
        ]

    def _buffers(self) -> list[str]:
        """Loads and evictions alternate, by chunk and by buffer; a chunk is there in every pass that asks for it."""
        stories: dict[str, list[Action]] = {}
        for action in self.order:
            if action.do in ("load", "evict") and action is not self.first:
                for name in action.data:
                    stories.setdefault(str(name), []).append(action)
        found = []
        for name, story in stories.items():
            if name.startswith("buffer ") and name not in self.buffers:
                found.append(f"{name} is used by action {story[0].id}, but action {self.first.id} does not name it")
            if name.startswith("chunk ") and int(name[6:]) in self.persistent:
                found.append(f"{name} is persistent, but action {story[0].id} does {story[0].do}")
            found += self._alternation(name, story)
        found += [f"chunk {chunk} is gathered, but persistent" for chunk in self.persistent & set(self.gathered)]
        if not found:
            for chunk in set(range(len(self.asking))) - self.persistent:
                found += self._there(chunk, stories.get(f"chunk {chunk}", []))
        return found

    def _alternation(self, name: str, story: list[Action]) -> list[str]:
        """Load, evict, load, …, evict: each surely after the one before, each eviction of what was loaded."""
        found = []
        for place, action in enumerate(story):
            if (action.do == "load") != (place % 2 == 0):
                return [f"{name} has {action.do} (action {action.id}) out of turn: loads and evictions alternate"]
        for earlier, later in pairwise(story):
            if later.do == "evict" and later.data != earlier.data:
                found.append(f"action {later.id} evicts {later.data}, but action {earlier.id} loaded {earlier.data}")
            if not self.before(earlier, later):
                found.append(f"action {later.id} does not wait for action {earlier.id}, both of {name}")
        if story[-1].do == "load":
            found.append(f"{name} is never evicted after action {story[-1].id}")
        return found

    def _there(self, chunk: int, story: list[Action]) -> list[str]:
        """Every asking pass lies between a load (and gather) and the next eviction; gradients complete in one stay."""
        found, stays = [], list(zip(story[::2], story[1::2], strict=True))
        gathered, several = self.gathered.get(chunk, []), self.problem.ranks > 1
        gathers = {action.op: action for action in gathered}
        if len(gathered) != len(stays) * several:
            found.append(f"chunk {chunk} is gathered {len(gathered)} times, but {len(stays) * several} times are due")
        homes = []
        for load, evict in stays:
            present = gathers.get(load.op) if several else load
            if present is None or not (present is load or self.before(load, present)):
                return [*found, f"action {load.id} loads chunk {chunk}, but no gather waits for it"]
            inside = [p for p in self.asking[chunk] if self._holds(load, present, evict, p)]
            homes += inside
            if load.op not in inside:
                found.append(f"pass {load.op} does not wait for action {present.id}, which brings chunk {chunk}")
            found += self._leaves(chunk, evict, inside)
        found += [
            f"pass {p} asks for chunk {chunk}, which is not surely there" for p in self.asking[chunk] if p not in homes
        ]
        return found

    def _holds(self, load: Action, present: Action, evict: Action, number: int) -> bool:
        """Whether the chunk is there from the start to the end of a pass, which is not before the load's own."""
        named = load.op is not None and load.op <= number
        return named and self.before(present, self.starts[number]) and self.before(self.ends[number], evict)

    def _leaves(self, chunk: int, evict: Action, inside: list[int]) -> list[str]:
        """It leaves right after the pass that is named; with its gradients after the last one, and not before."""
        backward = [p for p in self.asking[chunk] if p >= self.count]
        trainable, last = self.problem.chunks[chunk].trainable, evict.op == self.asking[chunk][-1]
        if evict.op not in inside:
            return [
                f"action {evict.id} evicts chunk {chunk} after pass {evict.op}, in which it was not asked for there"
            ]
        if (evict.lane == OUT) != (trainable and last):
            return [
                f"action {evict.id} evicts chunk {chunk} on {evict.lane}: gradients leave by {OUT}, nothing else does"
            ]
        if trainable and not last and (evict.op or 0) >= backward[0]:
            return [f"action {evict.id} evicts chunk {chunk}, whose gradients are not complete"]
        return []

    def _gradients(self) -> list[str]:
        """By chunk: last asking backward, exchange between ranks, eviction, update; nothing of a frozen chunk."""
        found: list[str] = []
        exchanges = [a for a in self.order if a.lane == COMM and str(a.data[0]).startswith("gradients ")]
        updates = [a for a in self.order if a.do == "update"]
        trained = [number for number, chunk in enumerate(self.problem.chunks) if chunk.trainable]
        due = Counter(trained if self.problem.ranks > 1 else ())
        for name, actions, expected in (("exchanged", exchanges, due), ("updated", updates, Counter(trained))):
            counted = Counter(map(number_of, actions))
            if counted != expected:
                wrong = next(c for c in {**counted, **expected} if counted[c] != expected[c])
                return [f"chunk {wrong} is {name} {counted[wrong]} times, but {expected[wrong]} times are due"]
        exchanged = {number_of(action): action for action in exchanges}
        away = {number_of(a): a for a in self.order if a.do == "evict" and a.lane == OUT}
        for update in updates:
            chunk = number_of(update)
            chain = [self.ends[self.asking[chunk][-1]], exchanged.get(chunk), away.get(chunk), update]
            found += self._chain([action for action in chain if action is not None])
            for action in filter(None, chain[1::2]):
                if action.op != self.asking[chunk][-1]:
                    found.append(
                        f"action {action.id} belongs to pass {action.op}, which does not complete chunk {chunk}"
                    )
            if (update.lane == COMPUTE) != (chunk in self.persistent):
                found.append(f"action {update.id} updates chunk {chunk} on {update.lane}, where its states are not")
            if not self.problem.overlap_update or update.lane == COMPUTE:
                found += self._after_all(update, [*exchanges[-1:], *list(away.values())[-1:]])
        return found

    def _after_all(self, update: Action, gradients: list[Action]) -> list[str]:
        """The device updates after all passes; where no update overlaps, all gradients are there.

        `gradients` are the last exchange and the last eviction: each kind has a lane, so the others come before them.
        """
        every = [self.ends[-1], *([] if self.problem.overlap_update else gradients)]
        late = next((action for action in every if not self.before(action, update)), None)
        return [] if late is None else [f"action {update.id} does not wait for action {late.id}, but updates after it"]

    def _swaps(self) -> list[str]:
        """By block: forward, swap-out, release, swap-in, backward; the swap-in's memory is there when it starts."""
        found: list[str] = []
        stories: dict[int, list[Action]] = {}
        for action in self.order:
            if action.do in ("swap_out", "release", "swap_in"):
                stories.setdefault(number_of(action), []).append(action)
        for block, story in stories.items():
            if [action.do for action in story] != ["swap_out", "release", "swap_in"]:
                return [
                    f"block {block} has {[a.do for a in story]}, but swap_out, release and swap_in are due, in order"
                ]
            if block in self.checkpointed or not self.problem.blocks[block].choice:
                return [f"block {block} is swapped, but it is computed again, or has no choice"]
            self.away[block] = (story[1], story[2])
            found += self._chain([self.ends[block], *story, self.starts[2 * self.count - 1 - block]])
            found += self._room(block, story[1], story[2])
        return found

    def _room(self, block: int, release: Action, swap_in: Action) -> list[str]:
        """The release stands right before a later forward pass, or the swap-in; that after the pass before its own."""
        at = swap_in.op or 0
        if not self.count <= at < 2 * self.count - block:
            return [f"action {swap_in.id} stands before pass {at}, not in backward up to its block's"]
        if not self.before(self.ends[at - 1], swap_in):
            return [f"action {swap_in.id} does not wait for pass {at - 1}, before which there is no room"]
        before = release.op or 0
        if release.lane == COMPUTE and block < before < self.count:
            return self._chain([self.ends[before - 1], release, self.starts[before]])
        if release.lane == swap_in.lane and before == at:
            return []
        return [f"action {release.id} stands before pass {before} on {release.lane}, which is no place of a release"]

    def _chain(self, chain: list[Action]) -> list[str]:
        return [
            f"action {later.id} does not wait for action {earlier.id}"
            for earlier, later in pairwise(chain)
            if not self.before(earlier, later)
        ]

    def _memory(self) -> list[str]:
        """Each pass fits the device, counting what is not surely released; what lies on the host fits there."""
        needs = self._needs()
        found = [
            f"pass {number} needs {needed} bytes on the device, which has {self.problem.device_bytes}"
            for number, needed in enumerate(needs)
            if needed > self.problem.device_bytes
        ]
        away = sum(c.host_bytes for number, c in enumerate(self.problem.chunks) if number not in self.persistent)
        host = away + sum(self.problem.blocks[block].activation_bytes for block in self.away)
        if host > self.problem.host_bytes:
            found.append(f"the schedule needs {host} bytes of host memory, but there are {self.problem.host_bytes}")
        return found

    def _needs(self) -> list[int]:
        """What each pass needs on the device: what earlier blocks hold, and its own."""
        blocks, gone = self.problem.blocks, [0] * (2 * self.count + 1)
        for index, (release, swap_in) in self.away.items():
            begin = next((p for p in range(index + 1, self.count) if self.before(release, self.starts[p])), self.count)
            gone[begin] += blocks[index].activation_bytes
            gone[max(begin, swap_in.op or 0)] -= blocks[index].activation_bytes
        needs, held = [], self.first.bytes + self.problem.fixed_bytes
        for number, end in enumerate(self.ends):
            index, held = number_of(end), held - gone[number]
            block = blocks[index]
            stays = block.input_bytes if index in self.checkpointed else block.activation_bytes
            if number < self.count:
                needs.append(held + stays + block.forward_transient_bytes)
                held += stays
            else:
                held -= stays
                needs.append(held + block.activation_bytes + block.backward_transient_bytes)
        return needs
