"""Whether a program fits a session is judged by training in one; what is told is what another run finds."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace

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
Parts = tuple[object, object, object]


def chain(device: torch.device) -> Parts:
    """Activations of 2 MiB, eight layers of them."""
    made = regression(perceptron([256] * 9), 2048, 256)(device)
    return made.model, made.optimizer, made.step


def wide(device: torch.device) -> Parts:
    """Parameters of 16 MiB, of which little is used at once."""
    made = regression(perceptron([1024] * 5), 16, 1024)(device)
    return made.model, made.optimizer, made.step


CALLS: list[int] = []
"""A call of a step of `counted`, over all builds."""


def counted(device: torch.device) -> Parts:
    """A wide model whose steps are counted."""
    model, optimizer, step = wide(device)

    def counting() -> object:
        CALLS.append(1)
        return step()  # type: ignore[operator]

    return model, optimizer, counting


def ending(calls: int, error: Callable[[], Exception], over_all: bool = False) -> Callable[[torch.device], Parts]:
    """A small program that raises after so many steps, of one build or of all together."""
    count: list[int] = []

    def factory(device: torch.device) -> Parts:
        made = regression(perceptron([64] * 5), 128, 64)(device)
        if not over_all:
            count.clear()

        def step() -> object:
            count.append(1)
            if len(count) > calls:
                raise error()
            return made.step()

        return made.model, made.optimizer, step

    return factory


four_batches = ending(4, StopIteration)
five_steps = ending(5, lambda: ValueError("tried to step 6 times"))
seven_batches = ending(7, StopIteration, over_all=True)


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


def test_what_its_building_refuses_is_not_trained() -> None:
    CALLS.clear()
    trained = sessions.train(f"{__name__}:counted", SIM, Budget(12 * MIB), 4, by_shapes=True)
    assert trained.refused is not None and not CALLS


@pytest.mark.parametrize(
    ("program", "ran", "error"),
    [("four_batches", 4, "(StopIteration)"), ("five_steps", 5, "(ValueError: tried to step 6 times)")],
)
def test_a_program_that_ends_by_itself_is_judged_by_the_steps_it_ran(program: str, ran: int, error: str) -> None:
    row = session_of(program, 64 * MIB)
    assert row.fits and row.step_us
    assert any(f"ended after {ran} steps by itself {error}" in said for said in row.remarks)


def test_a_program_that_ends_too_early_cannot_be_told_and_only_in_this_row() -> None:
    name, asked = f"{__name__}:seven_batches", Asked(SIM, ("plain", "session"), "greedy-swap", Limits())
    recording = recorded_program(name, SIM)
    program_rows(name, asked, recording, Budget(64 * MIB))  # what batches are left
    plain, row = program_rows(name, asked, recording, Budget(64 * MIB))
    assert plain.fits and row.fits is None
    assert row.reason == "cannot be told: the program ran 0 steps only (StopIteration)"


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


Outcome = Callable[[int], Trained]


def judged(monkeypatch: pytest.MonkeyPatch, budget: int, outcome: Outcome) -> tuple[Row, list[int]]:
    """The row where a session within so many bytes comes out as told, and the budgets that were tried."""
    tried: list[int] = []

    def train(_factory: str, _hardware: object, within: Budget, *_: object) -> Trained:
        tried.append(within.bytes)
        return outcome(within.bytes)

    recording = recorded_program(PROGRAM, SIM)
    monkeypatch.setattr(sessions, "train", train)
    return sessions.session_row(PROGRAM, SIM, recording, Budget(budget)), tried


def trained(budget: int, held: int, **changed: object) -> Trained:
    """Sixteen steps with so many bytes reserved."""
    return replace(Trained(budget, 16, "Stable", held), **changed)  # type: ignore[arg-type]


def test_an_allocator_that_held_more_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    row, _ = judged(monkeypatch, 20 * MIB, lambda budget: trained(budget, 1 << 30))
    assert row.fits is False and row.reason is not None
    assert "the allocator held 1073741824 bytes" in row.reason and "None" not in row.reason


def test_what_ends_the_search_leaves_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(budget: int) -> Trained:
        return trained(budget, budget) if budget == 40 * MIB else Trained(budget, 1, ended="RuntimeError: no port")

    row, tried = judged(monkeypatch, 40 * MIB, outcome)
    assert row.fits and row.least_reserved_bytes == 40 * MIB and len(tried) == 2
    assert any("the program ran 1 steps only (RuntimeError: no port)" in said for said in row.remarks)


def test_what_was_refused_lies_below_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    least = 60 * MIB  # more than the plain step's
    row, tried = judged(monkeypatch, 1 << 30, lambda budget: trained(budget, budget if budget >= least else 1 << 40))
    assert row.fits and row.least_reserved_bytes is not None
    (said,) = [said for said in row.remarks if "were refused" in said]
    assert int(said.partition("steps; ")[2].partition(" ")[0]) < row.least_reserved_bytes <= 2 * min(tried)


def test_a_session_is_trained_where_it_is_asked_for() -> None:
    asked = Question(hardware=SIM).asked.techniques
    assert "session" not in asked and len(asked) == 6
    assert Question(hardware=SIM, techniques=("session",)).asked.techniques == ("session",)


def test_of_a_shape_nothing_is_trained() -> None:
    row = rows(told(*SHAPE, "--technique", "session", hardware="h200"))["session"]
    assert row["fits"] is None and "give MODULE:FACTORY" in row["reason"]
