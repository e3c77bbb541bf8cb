"""Ranks that take turns: the earliest goes on, what belongs to a process is each one's own, and a deadlock is told."""

import os
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

from runtime.ranks.belongings import Belongings
from runtime.ranks.turns import Abandoned, Deadlock, Turns, Wait


@pytest.fixture(autouse=True)
def outside() -> Iterator[None]:
    """The process has afterwards what it had."""
    before = Belongings.of_process()
    yield
    before.take_out()


def drawn_by_torch() -> float:
    return float(torch.rand(()))


def run(turns: Turns, program: Callable[[int], None]) -> list[BaseException | None]:
    """Each rank's program on its thread, to the end; what each of them raised."""
    errors: list[BaseException | None] = [None] * turns.ranks

    def main(rank: int) -> None:
        try:
            turns.enter(rank)
            program(rank)
        except BaseException as error:
            errors[rank] = error
        if not isinstance(errors[rank], Abandoned):
            turns.leave(errors[rank])

    threads = [threading.Thread(target=main, args=(rank,)) for rank in range(turns.ranks)]
    for thread in threads:
        thread.start()
    turns.begin()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return errors


def test_one_computes_until_it_waits_then_the_earliest_goes_on() -> None:
    clocks, told, met = [0, 20, 10], list[str](), set[int]()
    turns = Turns(3, clocks.__getitem__)

    def program(rank: int) -> None:
        told.append(f"{rank} comes")
        met.add(rank)
        turns.wait(Wait("the meeting", lambda: (), lambda: len(met) == 3))
        told.append(f"{rank} goes on")

    assert run(turns, program) == [None, None, None]
    assert told == ["0 comes", "2 comes", "1 comes", "1 goes on", "0 goes on", "2 goes on"]
    assert turns.holder is None


def test_each_rank_has_its_own_random_numbers_and_variables() -> None:
    """Two ranks draw in turns what each would draw alone; afterwards the process has what it had."""
    drawn: list[list[float]] = [[], []]
    turns = Turns(2, lambda rank: len(drawn[rank]))

    def has_drawn(rank: int, numbers: int) -> bool:
        return len(drawn[rank]) >= numbers

    def program(rank: int) -> None:
        torch.manual_seed(rank)
        random.seed(rank)
        for step in range(3):
            drawn[rank] += [float(torch.rand(())), random.random()]
            assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == (str(rank), "2")
            turns.wait(Wait("a step", tuple, partial(has_drawn, 1 - rank, 2 * step + 2)))

    variables = os.environ.get("RANK")
    torch.manual_seed(7)
    expected = Belongings.of_process()
    assert run(turns, program) == [None, None]
    expected.take_out()
    for rank in (0, 1):
        torch.manual_seed(rank)
        random.seed(rank)
        assert drawn[rank] == [draw() for _ in range(3) for draw in (drawn_by_torch, random.random)]
    assert turns.passed > 4
    assert os.environ.get("RANK") == variables


def test_a_deadlock_names_who_waits_for_whom() -> None:
    turns = Turns(2, lambda rank: 0)
    never = [
        Wait("recv 1 from rank 1", lambda: (1,), lambda: False),
        Wait("recv 1 from rank 0", lambda: (0,), lambda: False),
    ]
    errors = run(turns, lambda rank: turns.wait(never[rank]))
    assert all(isinstance(error, Deadlock) for error in errors)
    assert str(errors[0]) == (
        "no rank can go on: rank 0 waits in recv 1 from rank 1 for rank 1; rank 1 waits in recv 1 from rank 0 for rank "
        "0. Let all of them call the same operations in the same order"
    )


def test_who_waits_for_a_rank_that_failed_is_told_why() -> None:
    turns = Turns(2, lambda rank: rank)

    def program(rank: int) -> None:
        if rank == 1:
            raise ValueError("no data")
        turns.wait(Wait("all_reduce 1", lambda: (1,), lambda: False))

    waiting, failed = run(turns, program)
    assert isinstance(failed, ValueError)
    assert "rank 0 waits in all_reduce 1 for rank 1, which ended with ValueError: no data" in str(waiting)


def test_a_run_can_be_given_up() -> None:
    turns = Turns(2, lambda rank: rank)
    begun = threading.Event()

    def program(rank: int) -> None:
        if rank == 0:
            begun.set()
            turns.wait(Wait("nothing", lambda: (1,), lambda: False))
        threading.Event().wait(0.2)
        turns.wait(Wait("nothing", lambda: (0,), lambda: False))

    def give_up() -> None:
        begun.wait(10)
        turns.abandon()

    giver = threading.Thread(target=give_up)
    giver.start()
    errors = run(turns, program)
    giver.join()
    assert all(isinstance(error, Abandoned) for error in errors)


def test_only_a_ranks_thread_may_wait() -> None:
    turns = Turns(1, lambda rank: 0)
    assert turns.rank is None
    with pytest.raises(AssertionError, match="only a rank's thread"):
        turns.wait(Wait("x", tuple, lambda: False))
