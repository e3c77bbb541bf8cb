"""What to leave to segments next: plans that ran, by what they left and what these took, of a budget of 1000 MiB."""

from runtime.recompute.room import MOST_SOUGHT, SMALLEST_BYTES, Room, Tried

MIB = 1 << 20


def tried(spare: int, took: int, cost: float, *, sought: bool = False) -> Tried[str]:
    return Tried(spare * MIB, took * MIB, cost, f"plan of {spare}", sought)


def room(*plans: Tried[str]) -> Room[str]:
    made = Room[str](1000 * MIB)
    for one in plans:
        made.note(one)
    return made


def test_nothing_is_sought_before_a_plan_has_kept_the_budget() -> None:
    broken = room(tried(0, 1120, 50), tried(120, 1010, 60))
    assert broken.next() is None and broken.best is None and broken.sought == 0
    assert broken.closest == tried(120, 1010, 60)


def test_the_line_between_what_kept_and_what_broke_crosses_the_budget() -> None:
    """From 1120 at 0 to 900 at 220: 1000 at 120; the share of what is in use would allow 142."""
    assert room(tried(0, 1120, 50), tried(220, 900, 80)).next() == 142 * MIB
    assert room(tried(0, 1010, 50), tried(220, 900, 80)).next() == 142 * MIB
    assert room(tried(0, 1500, 50), tried(220, 990, 80)).next() is None  # 4 MiB: less than a hundredth
    assert room(tried(0, 1500, 50), tried(400, 900, 80)).next() == 340 * MIB  # the share; the line would allow 333


def test_halfway_to_a_plan_for_room_that_broke_the_budget() -> None:
    plans = tried(0, 1120, 50), tried(220, 900, 80), tried(120, 1001, 60, sought=True)
    assert room(*plans).next() == 170 * MIB


def test_the_cheapest_of_the_plans_that_kept_the_budget_is_best() -> None:
    plans = tried(0, 1120, 50), tried(220, 900, 80), tried(142, 980, 70, sought=True), tried(180, 950, 70, sought=True)
    assert room(*plans).best == plans[3]  # of two that cost as much
    assert room(*plans[:3]).best == plans[2]


def test_few_plans_are_made_and_none_where_room_is_less_than_a_small_segment() -> None:
    kept = room(tried(0, 1120, 50), tried(220, 900, 80))
    assert [kept.next() is None for _ in range(MOST_SOUGHT + 1)] == [False] * MOST_SOUGHT + [True]
    small = Room[str](60 * MIB)
    small.note(tried(30, 57, 80))
    assert small.next() is None and SMALLEST_BYTES == 2 * MIB
    closed = room(tried(220, 900, 80))
    closed.close()
    assert closed.next() is None
    closed.forget()
    assert closed.best is None and closed.closest is None


def test_a_plan_that_costs_as_much_as_one_that_broke_is_known() -> None:
    plans = room(tried(0, 1120, 50), tried(220, 900, 80))
    assert plans.known(50) == tried(0, 1120, 50) and plans.known(80) is None
