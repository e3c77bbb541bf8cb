"""Random programs of two streams, the host and its worker on one page-locked block: the verdict of a graph search."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.device import SimDevice, use_sim
from tests.csrc.sim.conftest import ROUND

N = 64
REGIONS = {"all": slice(0, N), "left": slice(0, N // 2), "right": slice(N // 2, N), "even": slice(0, N, 2)}
HOST, WORKER = 2, 3
POOL: list[torch.Stream] = []


@dataclass(frozen=True)
class Step:
    """Streams 0 and 1 copy a region from or to their own device tensor; the host and its worker read or change it."""

    doer: int
    write: bool  # Of the page-locked block.
    region: str
    waits: frozenset[int]  # Earlier steps, counted back from this one.


def conflict(a: Step, b: Step) -> bool:
    return (a.write or b.write) and bool(set(range(N)[REGIONS[a.region]]) & set(range(N)[REGIONS[b.region]]))


def before(steps: Sequence[Step], waited: Sequence[set[int]]) -> list[set[int]]:
    """For each step, all that happen before it: by its doer's order, by waits, and what the host knew at its launch."""
    known: list[set[int]] = []
    host: set[int] = set()
    for number, step in enumerate(steps):
        past = set(host)
        for i in {i for i in range(number) if steps[i].doer == step.doer} | waited[number]:
            past |= known[i] | {i}
        known.append(past)
        if step.doer == HOST:
            host |= past | {number}
    return known


def run(sim: SimDevice, steps: Sequence[Step], waited: Sequence[set[int]], watched: bool) -> torch.Tensor:
    if not POOL:
        POOL.extend(torch.Stream(device="sim") for _ in range(2))
    pinned = torch.zeros(N).pin_memory()
    device = [torch.full((N,), 10.0 + i).to("sim") for i in range(2)]
    torch.accelerator.synchronize()
    ends: list[torch.Event | None] = []
    for number, step in enumerate(steps):
        part, events = pinned[REGIONS[step.region]], [ends[i] for i in sorted(waited[number])]
        given = [event for event in events if event is not None]
        if step.doer == WORKER:
            for event in given:
                sim.host_task(0, event)
            ends.append(run_task(sim, part, step, watched))
        elif step.doer == HOST:
            for event in given:
                event.synchronize()
            if not watched:
                sim.host_access(part, step.write)
            with sim.checking_host() if watched else nullcontext():
                change(part, step)
            ends.append(None)
        else:
            mine = device[step.doer][REGIONS[step.region]]
            for event in given:
                POOL[step.doer].wait_event(event)
            with POOL[step.doer]:
                (part if step.write else mine).copy_(mine if step.write else part, non_blocking=True)
                ends.append(POOL[step.doer].record_event())
    torch.accelerator.synchronize()
    return torch.cat([pinned, *(one.cpu() for one in device)])


def run_task(sim: SimDevice, part: torch.Tensor, step: Step, watched: bool) -> torch.Event:
    """What it touches is told by its operators, or by the program."""
    if watched:
        return sim.host_task(5, work=lambda: change(part, step))
    done = sim.host_task(5, writes=[part]) if step.write else sim.host_task(5, reads=[part])
    change(part, step)
    return done


def change(part: torch.Tensor, step: Step) -> None:
    if step.write:
        part.mul_(2).add_(1)
    else:
        part.sum()


def on_cpu(steps: Sequence[Step]) -> torch.Tensor:
    pinned, device = torch.zeros(N), [torch.full((N,), 10.0 + i) for i in range(2)]
    for step in steps:
        part = pinned[REGIONS[step.region]]
        if step.doer in (HOST, WORKER):
            change(part, step)
        elif step.write:
            part.copy_(device[step.doer][REGIONS[step.region]])
        else:
            device[step.doer][REGIONS[step.region]].copy_(part)
    return torch.cat([pinned, *device])


STEP = st.builds(
    Step,
    doer=st.integers(0, WORKER),
    write=st.booleans(),
    region=st.sampled_from(sorted(REGIONS)),
    waits=st.frozensets(st.integers(1, 4), max_size=2),
)
PROGRAMS = st.lists(STEP, min_size=2, max_size=8)


@settings(max_examples=150)
@given(PROGRAMS, st.booleans())
def test_any_program_races_exactly_where_no_path_of_waits_leads(steps: list[Step], watched: bool) -> None:
    sim = use_sim(ROUND, races="record")
    sim.reset()
    waited = [{number - back for back in step.waits if back <= number} for number, step in enumerate(steps)]
    past = before(steps, waited)
    pairs = [(i, j) for j in range(len(steps)) for i in range(j) if conflict(steps[i], steps[j]) and i not in past[j]]
    run(sim, steps, waited, watched)
    assert bool(sim.races()) == bool(pairs)


@settings(max_examples=100)
@given(PROGRAMS, st.booleans())
def test_a_program_with_all_its_waits_is_clean_and_computes_what_one_thread_would(
    steps: list[Step], watched: bool
) -> None:
    sim = use_sim(ROUND, races="record")
    sim.reset()
    complete = [{i for i in range(number) if conflict(steps[i], step)} for number, step in enumerate(steps)]
    assert torch.equal(run(sim, steps, complete, watched), on_cpu(steps))
    assert sim.races() == []
