"""Every wait of many small programs dropped in turn: those that order two conflicting accesses are named.

The programs are the patterns of real training: buckets of gradients, parameters gathered ahead, gradients scattered
beside the backward pass, pipelines, groups within groups, side streams, the host's buffers; and random ones, where
nothing is intended.

One file: the patterns are its data, and the tests below are three.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from tests.runtime.ranks.steps import HOST_WAITS, WAITS, Program, Step, told, unordered

pytestmark = pytest.mark.usefixtures("plain_sim")


def same(ranks: int, steps: Sequence[Step]) -> Program:
    """All ranks do the same."""
    return [list(steps) for _ in range(ranks)]


def buckets(count: int, waits: Sequence[int], ranks: int = 3) -> Program:
    """DDP: each gradient is reduced once it is there, all are awaited in some order, then the optimizer reads them."""
    everyone, steps = tuple(range(ranks)), list[Step]()
    for i in range(count):
        steps += [Step("compute", writes=(f"b{i}",))]
        steps += [Step("all_reduce", reads=(f"b{i}",), writes=(f"b{i}",), name=f"w{i}", ranks=everyone)]
    steps += [Step("wait", name=f"w{i}") for i in waits]
    steps += [Step("compute", reads=(f"b{i}",), writes=("p",)) for i in range(count)]
    return same(ranks, steps)


def gathered_ahead(layers: int, buffers: int, ranks: int = 2) -> Program:
    """FSDP: a layer's parameters are gathered on a side stream while the layer before computes, into few buffers."""
    everyone = tuple(range(ranks))

    def gather(i: int) -> list[Step]:
        into = f"g{i % buffers}"
        return [
            Step("stream_wait", stream="side", name="main"),
            Step("all_gather", stream="side", reads=(f"s{i}",), writes=(into,), name=f"w{i}", ranks=everyone),
        ]

    steps = gather(0)
    for i in range(layers):
        steps += gather(i + 1) if i + 1 < layers and buffers > 1 else []
        steps += [Step("wait", name=f"w{i}"), Step("compute", reads=(f"g{i % buffers}",), writes=("a",))]
        steps += gather(i + 1) if i + 1 < layers and buffers == 1 else []
    return same(ranks, steps)


def scattered_behind(layers: int, buffers: int, ranks: int = 3) -> Program:
    """FSDP's backward: whole gradients go into few buffers, which are free again when their scattering has been."""
    everyone, steps = tuple(range(ranks)), list[Step]()
    for i in range(layers):
        whole = f"g{i % buffers}"
        steps += [Step("wait", name=f"w{i - buffers}")] if i >= buffers else []
        steps += [Step("compute", writes=(whole,))]
        steps += [Step("reduce_scatter", reads=(whole,), writes=(f"s{i}",), name=f"w{i}", ranks=everyone)]
    steps += [Step("wait", name=f"w{i}") for i in range(max(0, layers - buffers), layers)]
    return same(ranks, [*steps, *(Step("compute", reads=(f"s{i}",)) for i in range(layers))])


def pipelined(stages: int, microbatches: int, buffers: int) -> Program:
    """Activations come into few buffers and go from few; each is used again after what used it before."""
    program = []
    for rank in range(stages):
        steps = list[Step]()
        for i in range(microbatches):
            come, go = f"in{i % buffers}", f"out{i % buffers}"
            if rank:
                steps += [Step("recv", writes=(come,), name=f"r{i}", ranks=(rank - 1, rank))]
                steps += [Step("wait", name=f"r{i}")]
            if i >= buffers and rank < stages - 1:
                steps += [Step("wait", name=f"s{i - buffers}")]
            steps += [Step("compute", reads=(come,) if rank else (), writes=(go,))]
            if rank < stages - 1:
                steps += [Step("send", reads=(go,), name=f"s{i}", ranks=(rank, rank + 1))]
        program.append(steps)
    return program


def rows_and_columns(turns: int) -> Program:
    """A mesh of 2 × 2: sums within rows, then within columns, of the same tensor."""
    program = []
    for rank in range(4):
        row, column = ((0, 1), (2, 3))[rank // 2], ((0, 2), (1, 3))[rank % 2]
        steps = list[Step]()
        for i in range(turns):
            steps += [Step("compute", writes=("x",))]
            for name, ranks in ((f"row{i}", row), (f"column{i}", column)):
                steps += [Step("all_reduce", reads=("x",), writes=("x",), name=name, ranks=ranks)]
                steps += [Step("wait", name=name)]
            steps += [Step("compute", reads=("x",), writes=("y",))]
        program.append(steps)
    return program


def with_events(turns: int, ranks: int = 2) -> Program:
    """Gradients are made on a side stream, reduced from the main one, and used on the side stream again."""
    everyone, steps = tuple(range(ranks)), list[Step]()
    for i in range(turns):
        steps += [
            Step("compute", stream="side", writes=("x",)),
            Step("record", stream="side", name=f"made{i}"),
            Step("event_wait", name=f"made{i}"),
            Step("all_reduce", reads=("x",), writes=("x",), name=f"w{i}", ranks=everyone),
            Step("wait", name=f"w{i}"),
            Step("record", name=f"summed{i}"),
            Step("event_wait", stream="side", name=f"summed{i}"),
            Step("compute", stream="side", reads=("x",), writes=("y",)),
        ]
    return same(ranks, steps)


def broadcasts(count: int, ranks: int = 3) -> Program:
    """The first rank's values go to all; it may go on reading them, and writes them when they are sent."""
    everyone, program = tuple(range(ranks)), []
    for rank in range(ranks):
        steps = list[Step]()
        for i in range(count):
            touched = {"reads" if rank == 0 else "writes": ("x",)}
            steps += [Step("broadcast", name=f"w{i}", ranks=everyone, **touched)]  # type: ignore[arg-type]
            steps += [Step("compute", reads=("x",))] if rank == 0 else []
            steps += [Step("wait", name=f"w{i}"), Step("compute", reads=("x",), writes=("y",))]
            steps += [Step("compute", writes=("x",))] if rank == 0 else []
        program.append(steps)
    return program


def read_back(turns: int, wait: str, ranks: int = 2) -> Program:
    """Sums come to the host, which reads them once it has waited: for an event, a stream, its device, or all ranks."""
    everyone, steps = tuple(range(ranks)), list[Step]()
    for i in range(turns):
        steps += [
            Step("compute", writes=("x",)),
            Step("all_reduce", reads=("x",), writes=("x",), name=f"w{i}", ranks=everyone),
            Step("wait", name=f"w{i}"),
            Step("to_host", reads=("x",), writes=("h",)),
            Step("record", name=f"e{i}"),
        ]
        match wait:
            case "event":
                steps += [Step("event_sync", name=f"e{i}")]
            case "stream":
                steps += [Step("stream_sync", name="main")]
            case "device":
                steps += [Step("device_sync")]
            case _:
                steps += [Step("barrier", ranks=everyone, name=f"b{i}")]
        steps += [Step("host", reads=("h",))]
    return same(ranks, steps)


def staged(turns: int, ranks: int = 2) -> Program:
    """The host fills one page-locked buffer again and again; each copy of it must be over before."""
    everyone, steps = tuple(range(ranks)), list[Step]()
    for i in range(turns):
        steps += [Step("host", writes=("h",)), Step("to_device", stream="side", reads=("h",), writes=("x",))]
        steps += [Step("stream_wait", name="side")]
        steps += [Step("all_reduce", reads=("x",), writes=("x",), name=f"w{i}", ranks=everyone)]
        steps += [Step("stream_sync", name="side"), Step("wait", stream="side", name=f"w{i}")]
    return same(ranks, steps)


def updated_on_the_host(turns: int, ranks: int = 2) -> Program:
    """Gradients go to the host, whose worker updates parameters there; they come back and are gathered."""
    everyone, steps = tuple(range(ranks)), list[Step]()
    for i in range(turns):
        steps += [
            Step("all_reduce", reads=("x",), writes=("x",), name=f"r{i}", ranks=everyone),
            Step("wait", name=f"r{i}"),
            Step("to_host", reads=("x",), writes=("h",)),
            Step("record", name=f"there{i}"),
            Step("event_wait", stream="worker", name=f"there{i}"),
            Step("task", stream="worker", reads=("h",), writes=("h",), name=f"updated{i}"),
            Step("event_wait", name=f"updated{i}"),
            Step("to_device", reads=("h",), writes=("p",)),
            Step("all_gather", reads=("p",), writes=("g",), name=f"g{i}", ranks=everyone),
            Step("wait", name=f"g{i}"),
            Step("compute", reads=("g",), writes=("x",)),
        ]
    return same(ranks, steps)


PROGRAMS: dict[str, Callable[[], Program]] = {
    **{f"buckets {n}": partial(buckets, n, range(n)) for n in (1, 2, 3, 5)},
    **{f"buckets {n} backwards": partial(buckets, n, range(n)[::-1]) for n in (2, 3, 4)},
    **{f"buckets {n} last": partial(buckets, n, [n - 1]) for n in (2, 4)},
    "buckets of four": lambda: buckets(3, range(3), ranks=4),
    **{f"gathered ahead {n}, {b}": partial(gathered_ahead, n, b) for n, b in ((2, 1), (3, 1), (3, 2), (5, 2))},
    "gathered ahead 5, 3": lambda: gathered_ahead(5, 3, ranks=3),
    **{f"scattered {n}, {b}": partial(scattered_behind, n, b) for n, b in ((2, 1), (3, 1), (3, 2), (5, 2))},
    **{
        f"pipeline {p}, {m}, {b}": partial(pipelined, p, m, b)
        for p, m, b in ((2, 1, 1), (2, 3, 1), (2, 4, 2), (3, 3, 1), (4, 4, 2))
    },
    **{f"rows and columns {n}": partial(rows_and_columns, n) for n in (1, 2, 3)},
    **{f"events {n}": partial(with_events, n) for n in (1, 2, 3)},
    "events of three": lambda: with_events(2, ranks=3),
    **{f"broadcasts {n}": partial(broadcasts, n) for n in (1, 2, 3)},
    **{
        f"read back {n} by {wait}": partial(read_back, n, wait)
        for n in (1, 2)
        for wait in ("event", "stream", "device", "barrier")
    },
    "read back by three": lambda: read_back(2, "event", ranks=3),
    **{f"staged {n}": partial(staged, n) for n in (2, 3)},
    **{f"updated on the host {n}": partial(updated_on_the_host, n) for n in (1, 2)},
}


def waits(program: Program) -> list[Step]:
    """The waits of all ranks, each once."""
    return list(dict.fromkeys(step for steps in program for step in steps if step.do in WAITS))


def without(program: Program, number: int, wait: Step) -> Program:
    """The program in which no rank takes the first (or second, …) of these waits."""
    left = []
    for steps in program:
        places = [i for i, step in enumerate(steps) if step == wait]
        left.append([step for i, step in enumerate(steps) if places[number : number + 1] != [i]])
    return left


def require_right(program: Program) -> list[bool]:
    """The pairs that are named are pairs that the judge sees, on every rank where it sees any.

    A pair that stands alone is named, and so is the first step at which a rank goes wrong. What comes behind it may
    stand for others: of two writes that are both unordered with a third, one is named.
    """
    wanted, found = unordered(program), told(program)
    for rank, (here, named) in enumerate(zip(wanted, found, strict=True)):
        assert named <= here, f"rank {rank}: {named - here} named, but ordered"
        if len(here) == 1:
            assert named == here, f"rank {rank}: {here} unordered, but not named"
        assert first_wrong(named) == first_wrong(here), f"rank {rank}: {here} unordered, but only {named} named"
    return [bool(pairs) for pairs in wanted]


def first_wrong(pairs: set[tuple[int, int]]) -> int | None:
    """The first step that is unordered with one before it."""
    return min((later for _, later in pairs), default=None)


def test_there_are_enough_programs_of_each_kind() -> None:
    assert len(PROGRAMS) >= 30
    assert {step.do for make in PROGRAMS.values() for step in waits(make())} == set(WAITS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_pattern_without_one_of_its_waits(name: str) -> None:
    """As it is nothing is named. Without a wait that matters something is, on each rank where it mattered."""
    program = PROGRAMS[name]()
    assert not any(require_right(program))
    mattered = set[str]()
    for wait in waits(program):
        times = max(steps.count(wait) for steps in program)
        if any([any(require_right(without(program, number, wait))) for number in range(times)]):
            mattered.add(wait.do)
    assert mattered
    there = {step.do for step in waits(program)}
    assert mattered >= there & set(HOST_WAITS), "the host waits for a reason"


def test_a_pair_that_stands_alone_is_the_one_that_is_named() -> None:
    """Each pattern of two steps that conflict once, its only wait dropped, on every rank."""
    alone = {
        "buckets 1": Step("wait", name="w0"),
        "gathered ahead 2, 1": Step("wait", name="w0"),
        "read back 1 by event": Step("event_sync", name="e0"),
        "read back 1 by stream": Step("stream_sync", name="main"),
        "read back 1 by device": Step("device_sync"),
        "read back 1 by barrier": Step("barrier", ranks=(0, 1), name="b0"),
    }
    for name, wait in alone.items():
        program = without(PROGRAMS[name](), 0, wait)
        wanted = unordered(program)
        assert all(len(pairs) == 1 for pairs in wanted), name
        assert told(program) == wanted, name


def test_a_wait_that_orders_nothing_is_not_missed() -> None:
    """A group's operations come one after the other: after the last one's wait the others' say nothing new."""
    program = buckets(3, (2, 1, 0))
    assert [any(require_right(without(program, 0, Step("wait", name=f"w{i}")))) for i in range(3)] == [
        False,
        False,
        True,
    ]


def drawn(seed: int) -> Program:
    """Steps at random, the same operations on all ranks; what is awaited, and when, is each rank's own."""
    draw = random.Random(seed)
    ranks = draw.choice([2, 3])
    everyone, program = tuple(range(ranks)), [list[Step]() for _ in range(ranks)]
    groups = [everyone, tuple(range(2))]
    for number in range(12):
        do = draw.choice(["compute"] * 2 + ["all_reduce", "all_gather", "message", "host"])
        group, buffer, stream = draw.choice(groups), f"b{draw.randrange(3)}", draw.choice(["main", "side"])
        for rank, steps in enumerate(program):
            name = f"w{number}"
            if do == "compute":
                steps.append(Step("compute", stream, (f"b{draw.randrange(3)}",), (f"b{draw.randrange(3)}",)))
            elif do == "host":
                steps.append(on_host(draw, stream, buffer))
            elif do == "message" and rank < 2:
                side = {"reads": (buffer,)} if rank == 0 else {"writes": (buffer,)}
                kind = "send" if rank == 0 else "recv"
                steps.append(Step(kind, stream, name=name, ranks=(0, 1), **side))  # type: ignore[arg-type]
            elif do == "all_reduce" and rank in group:
                steps.append(Step("all_reduce", stream, (buffer,), (buffer,), name, group))
            elif do == "all_gather":
                steps.append(Step("all_gather", stream, (buffer,), ("g0",), name, everyone))
            steps += own_waits(draw, steps)
    return program


def on_host(draw: random.Random, stream: str, buffer: str) -> Step:
    """A copy to or from page-locked memory, or an access of the host's own."""
    kind = draw.choice(["to_host", "to_device", "read", "write"])
    if kind in ("read", "write"):
        return Step("host", **{f"{kind}s": ("h0",)})  # type: ignore[arg-type]
    source, target = (buffer, "h0") if kind == "to_host" else ("h0", buffer)
    return Step(kind, stream, (source,), (target,))  # type: ignore[arg-type]


def own_waits(draw: random.Random, steps: list[Step]) -> list[Step]:
    """None, or one for a work that is there or for the other stream."""
    works = [step.name for step in steps if step.name.startswith("w") and step.do not in WAITS]
    stream, other = draw.sample(["main", "side"], 2)
    kind = draw.choice(["none", "stream", "work", "work", "host"])
    if kind == "host":
        return draw.choice([[Step("stream_sync", name=stream)], [Step("device_sync")], []])
    if kind == "stream":
        return [Step("stream_wait", stream, name=other)]
    return [Step("wait", stream, name=draw.choice(works))] if kind == "work" and works else []


def check_drawn(seed: int) -> None:
    program = drawn(seed)
    require_right(program)
    for wait in waits(program):
        require_right(without(program, 0, wait))


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_and_each_without_a_wait(seed: int) -> None:
    check_drawn(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4, 300))
def test_more_random_programs(seed: int) -> None:
    check_drawn(seed)
