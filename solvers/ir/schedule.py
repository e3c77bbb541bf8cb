"""A schedule is data: lanes, and actions in lane order with the events they wait for (formats.md 11)."""

import re
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import Annotated, ClassVar, Literal, get_args

import msgspec

from solvers.ir.errors import InvalidInput, InvalidProblem
from solvers.ir.fields import Bytes, Index, Record, TensorId, require, require_unique

Do = Literal[
    "compute",
    "recompute",
    "swap_out",
    "swap_in",
    "release",
    "send",
    "recv",
    "collective_start",
    "collective_wait",
    "load",
    "evict",
    "update",
]
LaneName = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+\.(compute|out|in|comm|host)\Z")]
ActionId = Index


class Action(Record, frozen=True, kw_only=True):
    """One thing that one lane does.

    `op` is the op index it belongs to (for `release`, `swap_in` and `swap_out`: the op before which it stands, or after
    which it is issued), `data` the tensors it touches, `after` the actions of other lanes whose end it waits for.
    In schedules of several ranks, `direction` (in files `pass`) is the pass that it is part of, and `peer` the rank at
    the other end of a `send` or `recv`.
    """

    id: ActionId
    lane: LaneName
    do: Do
    op: Index | None = None
    microbatch: Index | None = None
    data: tuple[TensorId, ...] = ()
    bytes: Bytes = 0
    after: tuple[ActionId, ...] = ()
    direction: Literal["forward", "backward"] | msgspec.UnsetType = msgspec.field(name="pass", default=msgspec.UNSET)
    peer: Index | msgspec.UnsetType = msgspec.UNSET

    def text(self) -> str:
        """One line: `7 0.out swap_out op=3 data=5 bytes=4096 after=2`; `parse_action` is its inverse."""
        parts = [str(self.id), self.lane, self.do]
        parts += [f"op={self.op}"] if self.op is not None else []
        parts += [f"mb={self.microbatch}"] if self.microbatch is not None else []
        parts += [f"pass={self.direction}"] if self.direction is not msgspec.UNSET else []
        parts += [f"peer={self.peer}"] if self.peer is not msgspec.UNSET else []
        parts += [f"data={','.join(_show(name) for name in self.data)}"] if self.data else []
        parts += [f"bytes={self.bytes}"] if self.bytes else []
        parts += [f"after={','.join(map(str, self.after))}"] if self.after else []
        return " ".join(parts)


class Schedule(Record, frozen=True, kw_only=True):
    """Actions in lane order (`bayplan-schedule/1`): list order is the order within a lane, `after` crosses lanes."""

    FORMAT: ClassVar[str] = "bayplan-schedule/1"
    lanes: tuple[LaneName, ...]
    actions: tuple[Action, ...]

    def __post_init__(self) -> None:
        """Refuse unknown lanes, repeated ids, unknown predecessors and orders that can never run (cycles)."""
        require_unique(self.lanes, "lane")
        require_unique([action.id for action in self.actions], "action")
        known = {action.id for action in self.actions}
        for number, action in enumerate(self.actions):
            require(
                action.lane in self.lanes,
                f"actions[{number}] runs on {action.lane!r}, which is not listed under lanes: add it",
            )
            for before in action.after:
                require(
                    before in known, f"actions[{number}] waits for action {before}, which does not exist: correct after"
                )
        self.order()

    def order(self) -> list[Action]:
        """The actions in an order that respects lanes and waits; a cycle raises `InvalidProblem`."""
        place = {action.id: number for number, action in enumerate(self.actions)}
        sorter: TopologicalSorter[int] = TopologicalSorter()
        last: dict[str, int] = {}
        for number, action in enumerate(self.actions):
            sorter.add(number, *(place[before] for before in action.after))
            if action.lane in last:
                sorter.add(number, last[action.lane])
            last[action.lane] = number
        try:
            sorter.prepare()
        except CycleError as error:
            cycle = [self.actions[number].id for number in error.args[1][1:]]
            sentence = f"actions {cycle} wait for each other: break the cycle in after or in the lane order"
            raise InvalidProblem(sentence) from error
        order: list[Action] = []
        ready = list(sorter.get_ready())
        heapify(ready)
        while ready:
            number = heappop(ready)
            order.append(self.actions[number])
            sorter.done(number)
            for unlocked in sorter.get_ready():
                heappush(ready, unlocked)
        return order

    def text(self) -> str:
        """The schedule, one action a line; `parse_schedule` is its inverse."""
        return "\n".join(["lanes " + " ".join(self.lanes), *(action.text() for action in self.actions)])


def parse_action(line: str) -> Action:
    """The action that `Action.text` wrote; raises `InvalidInput` naming the line."""
    words = line.split(" ")
    keys = {"op": "op", "mb": "microbatch", "pass": "pass", "peer": "peer", "data": "data", "bytes": "bytes"}
    keys["after"] = "after"
    fields: dict[str, object] = {}
    try:
        number, lane, do = words[:3]
        for word in words[3:]:
            key, value = word.split("=", 1)
            if keys[key] in fields:
                raise ValueError(key)
            fields[keys[key]] = _read(key, value)
        return msgspec.convert({"id": int(number), "lane": lane, "do": do, **fields}, Action)
    except (ValueError, KeyError) as error:
        form = f"<id> <lane> <{'|'.join(get_args(Do)[:3])}|…> [op=] [mb=] [pass=] [peer=] [data=] [bytes=] [after=]"
        raise InvalidInput(f"cannot read the action {line!r} ({error}): write {form}") from error


def parse_schedule(text: str) -> Schedule:
    """The schedule that `Schedule.text` wrote; raises `InvalidInput` naming the line."""
    first, *lines = text.strip().split("\n")
    if first.split()[:1] != ["lanes"]:
        raise InvalidInput(f"the text begins with {first[:40]!r}: the first line must be 'lanes' and the lane names")
    return Schedule(lanes=tuple(first.split()[1:]), actions=tuple(parse_action(line) for line in lines if line.strip()))


def lane_actions(actions: Iterable[Action], lane: str) -> list[Action]:
    """The actions of one lane, in order."""
    return [action for action in actions if action.lane == lane]


def _show(name: TensorId) -> str:
    return (
        str(name)
        if isinstance(name, int)
        else msgspec.json.encode(name).decode().replace(" ", "\\u0020").replace(",", "\\u002c")
    )


def _read(key: str, value: str) -> object:
    if key == "data":
        return tuple(msgspec.json.decode(part) for part in re.split(",", value))
    if key == "pass":
        return value
    return tuple(int(part) for part in value.split(",")) if key == "after" else int(value)
