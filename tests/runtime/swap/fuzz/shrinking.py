"""Makes a failing program smaller for as long as it still fails."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from runtime.swap.stages import StageSettings
from tests.runtime.swap.fuzz.program import Program, Turn
from tests.runtime.swap.fuzz.sessions import judge
from tests.runtime.swap.fuzz.variants import Variant

Fails = Callable[[Program, Variant], bool]


def require_no_fault(seed: int, program: Program, variant: Variant, device: torch.device) -> None:
    """Fails with the smallest program that does, too."""
    verdict = judge(program, variant, device)
    if verdict.fault is None:
        return
    smallest = shrunk(program, variant, lambda program, variant: judge(program, variant, device).fault is not None)
    fault = judge(*smallest, device).fault
    pytest.fail(f"seed {seed}: {verdict.fault}\nsmallest: {fault}\n{smallest[0]}\n{smallest[1]}", pytrace=False)


def shrunk(program: Program, variant: Variant, fails: Fails, seconds: float = 30.0) -> tuple[Program, Variant]:
    """The smallest pair found in the time that fails too; every step leaves one thing out."""
    deadline = time.monotonic() + seconds
    found = True
    while found and time.monotonic() < deadline:
        found = False
        for smaller in _simpler(program, variant):
            if time.monotonic() > deadline:
                break
            if fails(*smaller):
                program, variant = smaller
                found = True
                break
    return program, variant


def _simpler(program: Program, variant: Variant) -> Iterator[tuple[Program, Variant]]:
    for turns in _fewer_turns(program.turns):
        yield replace(program, turns=turns), variant
    for place in range(len(program.parts)):
        if len(program.parts) > 1:
            yield replace(program, parts=program.parts[:place] + program.parts[place + 1 :]), variant
    for plain in (
        {"tied": False},
        {"clipped": False},
        {"scaled": False},
        {"hooked": False},
        {"prefetch": False},
        {"beside": ""},
        {"inside": False},
    ):
        smaller = replace(program, **plain)
        if smaller != program and ("scaled" not in plain or not _overflows(program)):
            yield smaller, variant
    for simple in (replace(program, accumulation=1), replace(program, optimizer="sgd")):
        if simple != program:
            yield simple, variant
    for other in (
        replace(variant, matching="features"),
        replace(variant, record_stream="custom"),
        replace(variant, boundaries="optimizer"),
        replace(variant, begins=0),
        replace(variant, pauses=None),
        replace(variant, sample_every=1),
        replace(variant, stages=StageSettings()),
        replace(variant, solver="greedy-swap"),
        replace(variant, headroom=0.0),
    ):
        if other != variant:
            yield program, other


def _fewer_turns(turns: tuple[Turn, ...]) -> Iterator[tuple[Turn, ...]]:
    """Half of them, all but one, one change less, or one batch like the one before."""
    if len(turns) > 3:
        yield turns[: len(turns) // 2]
    for place in reversed(range(len(turns))):
        if len(turns) > 1:
            yield turns[:place] + turns[place + 1 :]
    for place, turn in enumerate(turns):
        for change in turn.changes:
            fewer = replace(turn, changes=tuple(one for one in turn.changes if one != change))
            yield (*turns[:place], fewer, *turns[place + 1 :])
        before = turns[place - 1]
        if place and (turn.rows, turn.length) != (before.rows, before.length):
            yield (*turns[:place], replace(turn, rows=before.rows, length=before.length), *turns[place + 1 :])


def _overflows(program: Program) -> bool:
    return any("overflow" in turn.changes for turn in program.turns)
