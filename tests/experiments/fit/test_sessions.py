"""Whether a program fits a session is judged by training in one; what is told is what another run finds."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from experiments.fit import sessions
from experiments.fit.answer import Row
from experiments.fit.asking import Question
from experiments.fit.judge import Asked, Budget
from experiments.fit.program import program_rows, recorded_program
from experiments.fit.sessions import Trained
from experiments.fit.show import _cells
from experiments.hardware import read_hardware
from runtime.device import CachingAllocator, memory_stats, use_sim
from runtime.swap import session
from solvers.ir.solution import Limits
from tests.experiments.commands.test_fit import SHAPE, rows, told
from tests.runtime.swap.segments.programs import perceptron, regression

pytestmark = pytest.mark.usefixtures("plain_sim")
SIM = read_hardware("sim-small")
PROGRAM = f"{__name__}:chain"
MIB = 1 << 20
ENDED = "the program ran 1 steps only (ValueError: no port)"
Parts = tuple[object, object, object]


def chain(device: torch.device) -> Parts:
    """Activations of 2 MiB, eight layers of them."""
    made = regression(perceptron([256] * 9), 2048, 256)(device)
    return made.model, made.optimizer, made.step


def wide(device: torch.device) -> Parts:
    """Parameters of 16 MiB, of which little is used at once."""
    made = regression(perceptron([1024] * 5), 16, 1024)(device)
    return made.model, made.optimizer, made.step


def four_batches(device: torch.device) -> Parts:
    """A program that trains for four steps."""
    made = regression(perceptron([64] * 5), 128, 64)(device)
    batches = iter(range(4))
    return made.model, made.optimizer, lambda: (next(batches), made.step())[1]


def session_of(program: str, budget: int) -> Row:
    """The row of a session alone."""
    name = f"{__name__}:{program}"
    asked = Asked(SIM, ("session",), "greedy-swap", Limits())
    return program_rows(name, asked, recorded_program(name, SIM), Budget(budget))[0]


def trains(budget: int, expandable: bool) -> bool:
    """Whether it is built and trains for six steps in a session, with numbers, and holds no more."""
    gc.collect()
    device = use_sim(capacity_bytes=1 << 33, allocator=CachingAllocator(expandable_segments=expandable)).device
    step = regression(perceptron([256] * 9), 2048, 256)(device).step
    if memory_stats(device).reserved_peak_bytes > budget:
        return False
    try:
        with session(budget, device=device):
            for _ in range(6):
                step()
            return memory_stats(device).reserved_peak_bytes <= budget
    except torch.OutOfMemoryError:
        return False


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    gc.collect()


@pytest.mark.parametrize("expandable", [False, True], ids=["segments", "pages"])
def test_the_least_budget_trains_and_the_one_below_it_does_not(expandable: bool) -> None:
    recording = recorded_program(PROGRAM, SIM)
    asked = Asked(SIM, ("plain", "session"), "greedy-swap", Limits())
    plain, large = program_rows(PROGRAM, asked, recording, Budget(44 * MIB, expandable))
    assert (plain.fits, large.fits) == (False, True)
    assert large.reserved_bytes is not None and large.reserved_bytes <= 44 * MIB < (plain.reserved_bytes or 0)
    assert plain.step_us is not None and large.step_us is not None and plain.step_us < large.step_us
    assert "by shapes alone" in large.how and large.host_bytes is not None and large.least_host_bytes is not None
    assert 0 < large.least_host_bytes <= large.host_bytes
    _, small = program_rows(PROGRAM, asked, recording, Budget(8 * MIB, expandable))
    assert small.fits is False and small.remarks[0].startswith("refused within 8388608 bytes")
    for row in (large, small):
        assert row.least_reserved_bytes is not None and row.least_reserved_bytes < 44 * MIB
        assert trains(row.least_reserved_bytes, expandable)
        (refused,) = [int(said.partition("steps; ")[2].partition(" ")[0]) for said in row.remarks if "tried" in said]
        assert refused < row.least_reserved_bytes and not trains(refused, expandable)


def test_a_model_that_is_larger_than_the_budget_before_the_session_begins_does_not_fit() -> None:
    row = session_of("wide", 12 * MIB)
    assert row.fits is False
    assert any("let the session begin before that" in said for said in row.remarks)
    assert sessions.train(f"{__name__}:wide", SIM, Budget(12 * MIB), 4, by_shapes=True).stage == ""


def test_a_program_that_ends_by_itself_is_judged_by_the_steps_it_ran() -> None:
    row = session_of("four_batches", 64 * MIB)
    assert row.fits and any("ended after 4 steps by itself (StopIteration)" in said for said in row.remarks)


def test_of_a_budget_much_larger_than_the_plain_step_no_more_is_used() -> None:
    asked = Asked(SIM, ("plain", "session"), "greedy-swap", Limits())
    recording = recorded_program(PROGRAM, SIM)
    (plain,) = program_rows(PROGRAM, replace(asked, techniques=("plain",)), recording, Budget(1))
    needed = plain.least_reserved_bytes or 0
    _, row = program_rows(PROGRAM, asked, recording, Budget(40 * needed))
    assert row.fits and row.allocated_bytes is None  # an arena is one block, whatever lies in it
    assert _cells(row)[1:3] == ("yes", "-")
    assert row.least_reserved_bytes is not None and row.least_reserved_bytes < needed
    assert row.reserved_bytes is not None and row.reserved_bytes <= needed
    assert row.margin_reserved_bytes == 40 * needed - row.least_reserved_bytes
    assert any("a session needs no more of the budget" in said for said in row.remarks)


def test_what_is_said_of_each_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = recorded_program(PROGRAM, SIM)

    def judged(budget: int, least: int, **below: Any) -> Row:
        def train(_factory: str, _hardware: object, within: Budget, *_: object) -> Trained:
            done = Trained(within.bytes, 16, "Stable", within.bytes)
            return done if within.bytes >= least else replace(done, **below)

        monkeypatch.setattr(sessions, "train", train)
        return sessions.session_row(PROGRAM, SIM, recording, Budget(budget))

    more, ends = {"reserved_bytes": 1 << 60}, {"steps": 1, "ended": "ValueError: no port"}
    row = judged(20 * MIB, 1 << 60, **more)
    assert row.fits is False and "the allocator held 1152921504606846976 bytes" in str(row.reason)
    assert judged(20 * MIB, 1 << 60, **ends).reason == f"cannot be told: {ENDED}"
    unknown = Trained(10, ended="ValueError")
    assert sessions._first_kept(lambda *_: unknown, Trained(5, refused="no"), [10, 20]) == (None, unknown)
    row = judged(40 * MIB, 40 * MIB, **ends)
    assert row.fits and row.least_reserved_bytes == 40 * MIB and any(ENDED in said for said in row.remarks)
    row = judged(1 << 30, 60 * MIB, **more)  # more than the plain step's
    (said,) = [said for said in row.remarks if "were refused" in said]
    assert int(said.partition("steps; ")[2].partition(" ")[0]) < 60 * MIB <= (row.least_reserved_bytes or 0) < 70 * MIB


def test_a_session_is_trained_where_it_is_asked_for() -> None:
    asked = Question(hardware=SIM).asked.techniques
    assert "session" not in asked and len(asked) == 6
    assert Question(hardware=SIM, techniques=("session",)).asked.techniques == ("session",)


def test_of_a_shape_nothing_is_trained() -> None:
    row = rows(told(*SHAPE, "--technique", "session", hardware="h200"))["session"]
    assert row["fits"] is None and "give MODULE:FACTORY" in row["reason"]
