"""Changes of many decisions at once: what is done about an output is done about others like it, in other layers.

Layers alike want decisions alike, and one at a time has to be worth it by itself. As in `moves.py` nothing asks whether
memory or the lanes have room.
"""

import random
from bisect import bisect_left, bisect_right
from itertools import pairwise

from solvers.joint.moves import Moves, Span

WIDTHS = (2, 3, 4, 8, 16)
"""How many outputs alike are decided alike in one change."""
NEXT = 4
"""Up to how many places further among outputs alike a decision is copied to."""
BESIDE = 4
"""How many ops before and behind one are copied with it, at most."""
FAR, SHORT = 60, 8
"""Stages before a reader in which a recomputation serves it, and up to which a gap that stays is no decision."""
WAITING = 0.3
"""Of wide changes of what leaves, the share that are of how long it waits before."""
ROUNDS, SENT = 12, 12
"""How often room is made in the fullest stage, and by how many outputs each time."""


class Patterns:
    """Random changes of several decisions; each says whether it came to an end, as those of `Moves` do."""

    def __init__(self, moves: Moves, source: random.Random) -> None:
        self.moves, self.state, self.given, self.source = moves, moves.state, moves.given, source

    def any(self) -> bool:
        """One of them."""
        roll = self.source.random()
        if roll < 0.1:
            return bool(self.moves.runs) and self._stay(*self.moves.worth_sending())
        if roll < 0.4:
            return self._copied()
        return self._beside() if roll < 0.7 else self._wide()

    # -- room

    def _stay(self, t: int, i: int) -> bool:
        """What is computed again stays, and others that would stay then leave, until there is room."""
        state, moves = self.state, self.moves
        a = moves.before(i, t)
        moves.remove(t, i)
        b = state.gap(i, a)
        if b is None:
            return False
        whole = self.given.budget - state.static
        for _ in range(ROUNDS):
            over = state.held[a : b + 1] + state.local[a : b + 1] - whole
            stage = int(over.argmax())
            if over[stage] <= 0:
                return True
            if not self._sent(i, a + stage, int(over[stage])):
                return False
        return False

    def _sent(self, but: int, stage: int, missing: int) -> bool:
        """So many bytes that only stay in a stage leave, of those drawn rather what stays longer."""
        state, source, held = self.state, self.source, list[Span]()
        for j in self.moves.sized:
            around = state.around(j, stage) if j < stage and j != but else None
            if around is not None and (j, around[0]) not in state.away:
                held.append((j, *around))
        for _ in range(SENT):
            if missing <= 0 or not held:
                break
            one, other = source.randrange(len(held)), source.randrange(len(held))
            span = held.pop(other if held[other][2] - held[other][1] > held[one][2] - held[one][1] else one)
            state.send(span[0], span[1])
            missing -= self.given.graph.size[span[0]]
        return missing <= 0

    # -- others alike

    def _copied(self) -> bool:
        """What is done about one output is done about another like it."""
        moves, source = self.moves, self.source
        if moves.runs and source.random() < 0.6:
            b, i = source.choice(moves.runs)
            a = moves.before(i, b)
        elif moves.gone:
            a, i = source.choice(moves.gone)
            b = self.state.away[i, a]
        else:
            return False
        others = moves.alike[i]
        place = bisect_left(others, i) + source.choice((-1, 1)) * source.randint(1, NEXT)
        return 0 <= place < len(others) and self._imitate(i, a, b, others[place])

    def _beside(self) -> bool:
        """What is done about an output and those beside it is done about the next ones like them."""
        moves, source = self.moves, self.source
        if not moves.runs:
            return False
        _, i = source.choice(moves.runs)
        others = moves.alike[i]
        place = bisect_left(others, i) + source.choice((-1, 1))
        if not 0 <= place < len(others):
            return False
        further, done = others[place] - i, False
        for j in range(max(0, i - source.randint(1, BESIDE)), min(len(self.given), i + source.randint(2, BESIDE + 1))):
            like = j + further
            if 0 <= like < len(self.given) and moves.alike[j] is moves.alike[like]:
                span = self._decided(j)
                done = (span is not None and self._imitate(j, *span, like)) or done
        return done

    def _wide(self) -> bool:
        """One decision changes, and that about several alike with it."""
        moves, state, source = self.moves, self.state, self.source
        if moves.gone and (not moves.runs or source.random() < 0.5):
            a, i = source.choice(moves.gone)
            changed = (moves.postpone if source.random() < WAITING else moves.redecide)(a, i)
        elif moves.runs:
            t, i = source.choice(moves.runs)
            a = moves.before(i, t)
            changed = moves.withdraw(t, i)
        else:
            return False
        place = bisect_right(state.touched[i], a)
        if not changed or place == len(state.touched[i]):
            return False
        b, others, done = state.touched[i][place], moves.alike[i], False
        step, start = source.choice((-1, 1)) * source.choice((1, 1, 1, 2, 3)), bisect_left(others, i)
        for number in range(1, source.choice(WIDTHS)):
            if 0 <= start + step * number < len(others):
                done = self._imitate(i, a, b, others[start + step * number]) or done
        return done

    # -- parts of them

    def _decided(self, i: int) -> tuple[int, int] | None:
        """The first gap of an output about which something is decided."""
        for a, b in pairwise(self.state.touched[i]):
            fate = self.moves.fate(i, a, b)
            if fate is not None and (fate != "stays" or b - a >= SHORT):
                return a, b
        return None

    def _imitate(self, i: int, a: int, b: int, other: int) -> bool:
        """Do about another output, for its like reader, what is done about op i between two stages."""
        fate, users = self.moves.fate(i, a, b), self.given.graph.users
        place = bisect_left(users[i], b)
        if fate is None or place == len(users[i]) or len(users[other]) != len(users[i]):
            return False
        reader = users[other][place]
        if fate == "again":
            return self._run(other, reader, reader - (users[i][place] - b))
        before = self._released(other, reader)
        if before is None:
            return False
        waits = self.state.behind(i, a) - a if fate == "leaves" else 0
        if (other, before) in self.state.away:
            if fate == "leaves" and self.state.behind(other, before) == before + waits:
                return False
            self.state.keep(other, before)
        if fate == "leaves":
            self.state.send(other, before, before + waits)
            return (other, before) in self.state.away
        return True

    def _served(self, j: int, reader: int) -> int | None:
        """The stage that computes op j again for a reader; None if none does."""
        stages, made = self.state.touched[j], self.state.made[j]
        if reader in made:
            return reader
        last = stages[bisect_left(stages, reader) - 1]
        return last if last in made and last != j and reader - last < FAR else None

    def _released(self, j: int, reader: int) -> int | None:
        """The stage that touches op j's output last before a reader for which it is no longer computed again."""
        at = self._served(j, reader)
        if at is not None:
            self.moves.remove(at, j)
        stages = self.state.touched[j]
        place = bisect_left(stages, reader)
        return stages[place - 1] if 0 < place < len(stages) and stages[place] == reader else None

    def _run(self, j: int, reader: int, at: int) -> bool:
        """Compute op j again in a stage for a reader, and nowhere else for it; False if it is so, or impossible."""
        served = self._served(j, reader)
        if at <= j or served == at:
            return False
        if served is not None:
            self.moves.remove(served, j)
        return j not in self.state.again[at] and self.moves.put(j, at)
