"""Failures on purpose: a worker kills or stops itself at the moments that its injections name."""

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from typing import cast, get_args

from runtime.elastic.faults import PeerLost
from runtime.elastic.messages import How, Injection, Killed, Moment, Upward
from solvers.ir.errors import InvalidInput
from solvers.ir.names import unknown

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Moments:
    """The injections of one node; each happens once."""

    def __init__(self, node: int, injections: Iterable[Injection], tell: Callable[[Upward], None]) -> None:
        self._node, self._tell = node, tell
        self._left = [one for one in injections if one.node == node]
        self._seen: Counter[tuple[Moment, int]] = Counter()

    def at(self, moment: Moment, step: int) -> None:
        """The worker is at this moment of a step."""
        if not self._left:
            return
        self._seen[moment, step] += 1
        for one in self._left:
            if (one.moment, one.step, one.nth) == (moment, step, self._seen[moment, step]):
                self._left.remove(one)
                self._tell(Killed(node=self._node, moment=moment, how=one.how, step=step))
                if moment == "unheard":
                    raise PeerLost("the vote's answer was lost on purpose")
                os.kill(os.getpid(), SIGNALS[one.how])
                return


_KILL = re.compile(r"(?P<node>\d+)@(?P<step>\d+)(?:\.(?P<moment>[a-z-]+))?(?::(?P<nth>\d+))?(?:\.(?P<how>kill|stop))?")
_JOIN = re.compile(r"(?P<what>return|fresh)@(?P<step>\d+)")


class Joins(dict[int, list[str]]):
    """By step: `return` for a stopped process that is to go on, `fresh` for a new one."""


def parse_kills(text: str) -> tuple[tuple[Injection, ...], Joins]:
    """Injections and joins as `3@5.backward, 6@8.forward:2.stop, return@10, fresh@14` says them.

    `NODE@STEP[.MOMENT][:NTH][.kill|.stop]`, separated by commas, blanks or `+`; raises `InvalidInput` for other words.
    """
    injections: list[Injection] = []
    joins = Joins()
    for word in filter(None, re.split(r"[,\s+]+", text)):
        if join := _JOIN.fullmatch(word):
            joins.setdefault(int(join["step"]), []).append(join["what"])
            continue
        kill = _KILL.fullmatch(word)
        if kill is None:
            raise InvalidInput(
                f"cannot read the kill {word!r}: write NODE@STEP.MOMENT, as in 3@5.backward, 6@8.forward.stop, "
                "return@10 or fresh@14"
            )
        moment = kill["moment"] or "forward"
        if moment not in get_args(Moment):
            raise unknown("moment", moment, get_args(Moment))
        injections.append(
            Injection(
                node=int(kill["node"]), step=int(kill["step"]), moment=cast("Moment", moment),
                how=cast("How", kill["how"] or "kill"), nth=int(kill["nth"] or 1),
            )
        )  # fmt: skip
    return tuple(injections), joins
