"""Every schedule of ReCycle's is one that nodes could run: judged pass by pass, apart from the code that makes it."""

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.replan.recycle_schedule import BACKWARD, FORWARD, WEIGHTS, Pass, Work, scheduled, windows

KINDS = (FORWARD, BACKWARD, WEIGHTS)


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Up to four stages and pipelines, any losses that leave a survivor, any order, held microbatches from one on."""
    depth, pipelines = draw(st.integers(1, 4)), draw(st.integers(1, 4))

    def times(least: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(least, 5), min_size=depth, max_size=depth)))

    apart = draw(st.booleans())
    return Work(
        forward_us=times(0),
        backward_us=times(0),
        weights_us=times(1) if apart else (0,) * depth,
        hop_us=draw(st.integers(0, 3)),
        flights=tuple(draw(st.lists(st.integers(1, 5), min_size=depth, max_size=depth))),
        order=draw(st.permutations(KINDS).map(lambda order: (order[0], order[1], order[2]))),
        pipelines=pipelines,
        microbatches=draw(st.integers(1, 4)),
        dead=tuple(tuple(sorted(draw(_lost(pipelines)))) for _ in range(depth)),
    )


def _lost(pipelines: int) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(0, pipelines - 1), max_size=pipelines - 1)


def faults(work: Work, passes: list[Pass]) -> list[str]:
    """What a cluster could not do: the rules of the schedule, each on its own."""
    depth = len(work.forward_us)
    times = (work.forward_us, work.backward_us, work.weights_us)
    kinds = KINDS if any(work.weights_us) else (FORWARD, BACKWARD)
    batches = [(number, home) for number in range(work.microbatches) for home in range(work.pipelines)]
    found = {(one.stage, one.kind, one.batch): one for one in passes}
    every = {(stage, kind, batch) for stage in range(depth) for kind in kinds for batch in batches}
    wrong = [] if set(found) == every and len(passes) == len(every) else ["not every pass runs once"]
    for (stage, kind, batch), one in found.items():
        if one.end_us - one.start_us != times[kind][stage]:
            wrong.append(f"{one} takes another time")
        gone = work.dead[stage]
        if one.pipeline in gone or (batch[1] not in gone and one.pipeline != batch[1]):
            wrong.append(f"{one} runs on a wrong node")
        before = {
            FORWARD: (stage - 1, FORWARD, batch),
            BACKWARD: (stage + 1, BACKWARD, batch) if stage + 1 < depth else (stage, FORWARD, batch),
            WEIGHTS: (stage, BACKWARD, batch),
        }[kind]
        if before in found:
            hop = work.hop_us if before[0] != stage else 0
            wrong += [] if one.start_us >= found[before].end_us + hop else [f"{one} begins before its input is there"]
    return wrong + _node_faults(work, passes)


def _node_faults(work: Work, passes: list[Pass]) -> list[str]:
    """One pass at a time, one node for all passes of a microbatch at a stage, and no more held than allowed."""
    wrong = []
    nodes: dict[tuple[int, int], list[Pass]] = {}
    for one in passes:
        nodes.setdefault((one.pipeline, one.stage), []).append(one)
    last = WEIGHTS if any(work.weights_us) else BACKWARD
    for (_, stage), ran in nodes.items():
        wrong += [f"{after} overlaps {before}" for before, after in pairwise(ran) if after.start_us < before.end_us]
        held = 0
        for one in ran:
            held += (one.kind == FORWARD) - (one.kind == last)
            wrong += [f"{one} holds {held}"] if held > work.flights[stage] else []
        wrong += ["a microbatch changes its node"] if len({(o.kind, o.batch) for o in ran}) != len(ran) else []
    return wrong


@settings(max_examples=400, deadline=None)
@given(work=works())
def test_a_cluster_could_run_it(work: Work) -> None:
    passes = scheduled(work)
    assert faults(work, passes) == []
    starts, ends = windows(passes, len(work.forward_us))
    for stage in range(len(work.forward_us)):
        mine = [one for one in passes if one.stage == stage]
        assert starts[stage] == min(one.start_us for one in mine)
        assert ends[stage] == max(one.end_us for one in mine)


@settings(max_examples=200, deadline=None)
@given(work=works())
def test_peers_share_what_was_lost_evenly(work: Work) -> None:
    for stage, gone in enumerate(work.dead):
        loads = Counter(row[home] for row in work.executors(stage) for home in gone)
        assert set(loads) <= set(range(work.pipelines)) - set(gone)
        lost = len(gone) * work.microbatches
        assert max(loads.values(), default=0) == -(-lost // (work.pipelines - len(gone)))


def test_weights_wait_for_a_bubble() -> None:
    """Two stages, two microbatches: the first stage waits for the second, and its weights fill the wait."""
    work = Work((1, 1), (1, 1), (1, 1), 0, (2, 2), (BACKWARD, FORWARD, WEIGHTS), 1, 2, ((), ()))
    of_first = [(one.start_us, "FBW"[one.kind], one.batch[0]) for one in scheduled(work) if one.stage == 0]
    assert of_first == [(0, "F", 0), (1, "F", 1), (3, "B", 0), (4, "W", 0), (5, "B", 1), (6, "W", 1)]
