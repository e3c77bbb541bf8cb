"""The kinds of iterations that a training loop has, and which of them comes next.

Algorithm 1 compares an iteration with the one before. A loop that validates every third step, alternates between two
lengths of sequences, or trains two networks by turns would never pass its warm-up. So iterations that are alike are of
one *kind*, and each kind goes through the stages by itself: to the kind's own iterations, Algorithm 1 looks as it
would if no others came between them (ours). A loop that settles has one kind at a time, and then nothing differs.

Alike are operators by Algorithm 1's condition, whatever their sizes: batches that are padded, packed or routed are of
one kind, and so are sequences of two lengths. Policies are made for the largest of a kind (`sizes.py`). Where sizes
vary, iterations with an expert or a layer fewer are of that kind, too: operators come and go, but no pass does.

The next iteration's kind is not known before it has run. It is taken to be what mostly followed the longest run of
latest kinds that has come at least twice before; if none has, what followed this kind when it came last; or else the
same again, as Algorithm 1 takes it. Where that is wrong, the iteration executes another kind's policy, which costs time
only, and is not measured for it.

One file: kinds are told apart, and foreseen, by the same record of their iterations.
"""

from collections import deque
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from runtime.swap.cost import StepTimes
from runtime.swap.generation import Generation
from runtime.swap.landmarks import BACKWARD
from runtime.swap.past import Past
from runtime.swap.policy import Policy
from runtime.swap.sizes import Sizes
from runtime.swap.stages import (
    Counted,
    Similarity,
    Stage,
    StageMachine,
    StageSettings,
    counted,
    relative_change,
    similarity,
)

SIZES = 64
"""Number of latest iterations of a kind whose sizes are remembered."""
LENGTHS = 0.25
"""Where sizes vary, lengths may differ by less than that share if nothing else does: an expert gets no tokens."""
LARGER = 0.02
"""By this share an iteration has to be larger than those that a policy is for before it is made again."""
WAITS = 8
"""So many smaller iterations are recorded at most, before and after a policy is made, in wait of the largest again."""
FAR_WAITS = SIZES
"""The same where the largest is beyond the reach of what was recorded, so that no policy can be made for it."""
REOPENINGS = 3
"""So often a kind is recorded anew though it became no larger: one that fitted because it did not after all, and one
whose largest iteration is beyond the reach of its policy."""
SPARINGS = 8
"""So often a policy is told to spare less: where memory lacks for other reasons, that would not help."""


Passes: TypeAlias = tuple[tuple[int, ...], int]
"""The phases that an iteration has, and the number of its backward passes."""


def passes_of(phases: bytes) -> Passes:
    """Of an iteration with these phases of its operators."""
    of_each = np.frombuffer(phases, dtype=np.uint8)
    backward = np.concatenate(([False], of_each == BACKWARD))
    return tuple(np.unique(of_each).tolist()), int(np.count_nonzero(backward[1:] & ~backward[:-1]))


class Kind:
    """Iterations that are like each other: their stage, and the policies made for them.

    `ranks` are the operators by falling frequency from which the features of the policy's tensors were made; `policy`
    is the best one, with its `place` among all results, both None where none is needed or none is better. `sizes` are
    the bytes that the forward passes of the latest iterations worked on, `planned_bytes` those that the policy is for.
    `waits_left` smaller iterations may still be recorded before policies are made from one of those, `far_left` of them
    as long as what was recorded fits and tells nothing of the largest, `records_left` of them after, in wait of one as
    large as has come but was not recorded. `reached_bytes` are those that recordings told of when the first policy was
    made. `sparing_left`: so often the policy may still be told to spare less in small iterations.
    """

    def __init__(self, settings: StageSettings) -> None:
        self.machine = StageMachine(settings)
        self.generation: Generation | None = None
        self.ranks: tuple[int, ...] = ()
        self.policy: Policy | None = None
        self.place: int | None = None
        self.operators: Counted | None = None
        self.passes: Passes = ((), 0)
        self.sizes: deque[int] = deque(maxlen=SIZES)
        self.planned_bytes = 0
        self.recorded = Sizes()
        self.reopenings_left = REOPENINGS
        self.waits_left = self.records_left = self.reached_bytes = 0
        self.far_left = FAR_WAITS
        self.sparing_left = SPARINGS
        self.returns: deque[tuple[int, int]] = deque(maxlen=SIZES // 2)
        self._changed: deque[bool] = deque(maxlen=SIZES // 2)
        self.follower: Kind | None = None
        self.times = StepTimes()

    @property
    def stage(self) -> Stage:
        """The stage of the kind's next iteration."""
        return self.machine.stage

    @property
    def generating(self) -> bool:
        """Whether policies are being made and tried."""
        return self.generation is not None and self.generation.open

    @property
    def settled(self) -> bool:
        """Whether the best policy of this kind is known."""
        return self.generation is not None and not self.generation.open

    @property
    def largest(self) -> int:
        """The size of the largest of the latest iterations."""
        return max(self.sizes, default=0)

    @property
    def shares(self) -> tuple[float, ...]:
        """Sizes from the least of the latest iterations to the largest, beside that: few were seen, any may come."""
        least = min(self.sizes, default=0) / max(self.largest, 1)
        return tuple(np.linspace(least, 1.0, SIZES).tolist())

    @property
    def enough(self) -> float:
        """What passes for the size of that one."""
        return (1 - LARGER) * self.largest

    @property
    def far(self) -> bool:
        """Whether the largest is beyond what recordings tell of."""
        return self.recorded.reach(self.largest) < self.enough

    @property
    def outgrown(self) -> bool:
        """Whether the latest iteration was larger than what its policy could be made for; counts what that allows."""
        if self.reopenings_left == 0 or not self.far or self.sizes[-1] * (1 - LARGER) <= self.reached_bytes:
            return False
        self.reopenings_left -= 1
        return True

    @property
    def records_more(self) -> int:
        """So many more iterations are recorded once a policy was made, in wait of the largest."""
        if not self.varies or self.recorded.most >= self.enough:
            return 0
        return FAR_WAITS if self.far else WAITS

    @property
    def recorded_more(self) -> bool:
        """Whether recordings tell of more than when one of the policies was made."""
        return self.recorded.reach(self.largest) * (1 - LARGER) > self.reached_bytes

    @property
    def varies(self) -> bool:
        """Whether sizes differ by more than sequences of a kind may in length, or most iterations from the one before.

        Where tokens are routed, sums of sizes may stay the same while each size changes.
        """
        tolerance = self.machine.settings.length_tolerance
        wide = bool(self.sizes) and relative_change(min(self.sizes), self.largest) >= tolerance
        return wide or 2 * sum(self._changed) > len(self._changed)

    @property
    def resizes(self) -> bool:
        """Whether most of the latest iterations were of another size than the one before."""
        latest = list(self.sizes)[-SIZES // 4 :]
        return 2 * sum(one != other for one, other in pairwise(latest)) >= len(latest) > 1

    @property
    def varies_by_now(self) -> bool:
        """Whether sizes have come to vary since policies were made for iterations of one size."""
        return self.resizes and self.varies and self.generation is not None and not self.generation.varies

    @property
    def unforeseen(self) -> tuple[int, int] | None:
        """Returns on demand and all returns of the latest iterations under the kept policy, where most were unforeseen.

        None while these iterations are few, too.
        """
        on_demand, all_returns = (sum(column) for column in zip(*self.returns, strict=True)) if self.returns else (0, 0)
        few = len(self.returns) < SIZES // 4
        return None if few or 2 * on_demand <= all_returns else (on_demand, all_returns)

    @property
    def changes(self) -> bool:
        """Whether operators or sizes of the latest iterations differ from one to the next."""
        return any(self._changed)

    def ended(self, operators: Counted, forward_bytes: int, passes: Passes = ((), 0)) -> None:
        """One of these iterations ended."""
        self.passes = passes
        if self.operators is not None:
            same = forward_bytes == self.sizes[-1] and np.array_equal(self.operators.ids, operators.ids)
            self._changed.append(not same)
        self.operators = operators
        self.sizes.append(forward_bytes)

    def waits(self, size: int) -> bool:
        """Whether to wait for a larger iteration instead of one of `size`; counts the wait."""
        if size >= self.enough or self.waits_left == 0:
            return False
        self.waits_left -= 1
        return True

    def tells_nothing(self, size: int) -> bool:
        """Whether a recorded iteration of `size` says nothing of the others; counts the wait for one that does.

        One of an empty batch does not, and while larger ones are waited for, none between those that were recorded.
        """
        if size == 0 < self.largest:
            return True
        waits = self.generation is not None and self.generation.fits and self.far and self.far_left > 0
        if waits and self.recorded.covers(size):
            self.far_left -= 1
            return True
        return False

    def forget(self) -> None:
        """Drop all policies, as before the first."""
        if self.generation is not None:
            self.generation.close()
        self.generation = self.policy = self.place = None
        self.recorded = Sizes()
        self.far_left = FAR_WAITS
        self.returns.clear()


class Kinds:
    """The kinds of a loop's iterations, as many as `StageSettings.remembered` of those that are settled.

    As many others are kept for coming again before they are. With `remembered=0`, and as printed, all iterations are
    of one kind: Algorithm 1 alone decides.
    """

    def __init__(self, settings: StageSettings) -> None:
        self._settings = settings
        self._past: Past[Kind] = Past()
        self._kinds: list[Kind] = []  # the latest first
        self.most = 0 if settings.printed else settings.remembered
        self.expected = Kind(settings)
        self.last: Similarity | None = None

    @property
    def steady(self) -> bool:
        """Whether all of the recent past was of one kind."""
        return self._past.steady

    def sort(self, ids: npt.NDArray[np.int64], forward_bytes: int, phases: bytes = b"") -> Kind:
        """The kind of the iteration that ended, a new one if need be; its stage is advanced.

        `phases` are those of its operators. Where sizes vary, an iteration in which operators come or go, but no pass,
        is of that kind, too.
        `last` is then how its operators compare with those of the iteration before. Raises `InvalidInput` for ids that
        are no operator's.
        """
        operators, passes = counted(ids), passes_of(phases)
        found = next((kind for kind in self._kinds if self._alike(kind, operators)), None)
        found = found or next((kind for kind in self._kinds if self._related(kind, operators, passes)), None)
        before = self._kinds[0] if self._kinds else None
        if found is None and before is None:
            found = self.expected
        if found is not None:
            found.machine.advance(operators, alike=self._related(found, operators, passes))
        else:
            found = Kind(self._settings)
            found.machine.begin_anew(operators)
        if before is None or found is before or before.operators is None:
            self.last = found.machine.last
        else:
            self.last = similarity(before.operators, operators, self._settings)
        found.ended(operators, forward_bytes, passes)
        self._keep([found, *(kind for kind in self._kinds if kind is not found)])
        return found

    def follow(self, ended: Kind) -> bool:
        """Expect the next iteration after one of that kind; whether the one before was of another."""
        before = self._past.latest or ended
        if before in self._kinds:
            before.follower = ended
        self._past.append(ended)
        following = self._past.successor() or ended.follower
        self.expected = following if following in self._kinds else ended
        return before is not ended

    def settle(self) -> None:
        """A kind has got its policy; beyond `most` such kinds, the one unused for longest is forgotten."""
        self._keep(self._kinds)

    def _alike(self, kind: Kind, operators: Counted) -> bool:
        if self.most == 0 or kind.operators is None:
            return True
        same = np.array_equal(kind.operators.ids, operators.ids)
        return same or similarity(kind.operators, operators, self._settings).similar

    def _related(self, kind: Kind, operators: Counted, passes: Passes) -> bool:
        """Whether sizes of the kind vary, and an iteration differs by some of its operators at most, in number too."""
        if self.most == 0 or kind.operators is None or not kind.resizes or kind.passes != passes:
            return False
        found = similarity(kind.operators, operators, self._settings)
        return found.cosine > self._settings.least_cosine and found.length_change < LENGTHS

    def _keep(self, kinds: list[Kind]) -> None:
        """Keep the latest settled and unsettled kinds; the kind of the iteration that just ended always stays."""
        most = max(self.most, 1)
        settled = [kind for kind in kinds if kind.settled][:most]
        others = [kind for kind in kinds if not kind.settled][:most]
        self._kinds = [kind for kind in kinds if kind in settled or kind in others]
        for kind in kinds:
            if kind not in self._kinds:
                kind.follower = None  # else each would keep the next one alive
                kind.forget()
