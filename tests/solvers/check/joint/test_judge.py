"""The judge of `joint` decisions: every rule broken once, times by hand, and all decisions of the tiniest problems."""

import random
from collections.abc import Iterator
from itertools import chain, combinations, permutations, product

import pytest
from msgspec.structs import replace

from solvers.check import check_plan
from solvers.check.joint import JUDGE
from solvers.check.joint.clock import Entry, end_us
from solvers.check.joint.judge import base_us
from solvers.ir import JointOp, JointPlan, JointProblem, JointSwap, SwapLink
from solvers.ir.codec import PlanFile, plan_from_raw, plan_to_raw
from tests.solvers.joint.brute_force import optimum, random_problem


def op(time_us: int, size: int, *inputs: int, comm: bool = False, replay: bool = True, work: int = 0) -> JointOp:
    return JointOp(
        name="op", time_us=time_us, output_bytes=size, inputs=inputs, comm=comm, replay=replay, workspace_bytes=work
    )


LINK = SwapLink(out_bytes_per_s=1_000_000, in_bytes_per_s=2_000_000, latency_us=0)  # a byte takes 1 µs out, 0.5 in
CHAIN = JointProblem(  # two forward ops, a loss, two backward ops
    name="chain",
    budget_bytes=9,
    static_bytes=1,
    link=LINK,
    ops=(op(5, 4), op(2, 4, 0), op(1, 1, 1), op(4, 1, 1, 2), op(9, 1, 0, 3)),
)
RUNS = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4))
SWAPPED = JointPlan(
    compute=RUNS, keep=((1, 0), (2, 1), (3, 1), (3, 2), (4, 3), (4, 0)), swap=(JointSwap(op=0, out_after=1, in_at=4),)
)
STAYING = (*SWAPPED.keep, (3, 0))
AGAIN = JointPlan(compute=(*RUNS, (4, 0)), keep=((1, 0), (2, 1), (3, 1), (3, 2), (4, 3)))


def test_times_by_hand() -> None:
    """Stage 1 ends at 7 with 8 + 1 bytes; stage 2 has a peak of 6: it waits until op 0's 4 bytes have left, at 11.

    Then 12, 16; the swap-in takes 2 from 16; stage 4 runs 18 … 27. Recomputed, op 0 costs 5 beside the base of 21.
    """
    assert JUDGE.decision(CHAIN, SWAPPED).objective_us == 27
    assert JUDGE.decision(CHAIN, AGAIN).objective_us == 26
    assert JUDGE.decision(replace(CHAIN, budget_bytes=11), SWAPPED).objective_us == 23  # room for what leaves
    early = replace(SWAPPED, swap=(JointSwap(op=0, out_after=1, in_at=3),), keep=STAYING)
    assert JUDGE.decision(replace(CHAIN, budget_bytes=11), early).objective_us == 24  # stage 3 waits until 11 for it


def test_numbers_that_the_host_reads_by_hand() -> None:
    """Launches take 1 µs each. Op 1 ends at 8, the numbers behind it are there at 11, and op 2 is launched at 12.

    Op 0 leaves from 12 to 16: op 2 is launched at 13, and op 4 runs from 20. Where op 0 leaves behind itself, from 6 to
    10, the numbers come at 13 only.
    """
    ops = [replace(one, launch_us=1, read_us=3 if i == 1 else 0) for i, one in enumerate(CHAIN.ops)]
    reading = replace(CHAIN, budget_bytes=11, launch_us=1, ops=tuple(ops))
    assert base_us(reading) == 12 + 1 + 4 + 9
    assert JUDGE.decision(reading, SWAPPED).objective_us == 13 + 1 + 4 + 2 + 9
    soon = replace(reading, ops=(ops[0], replace(ops[1], inputs=()), *ops[2:]))
    early = replace(SWAPPED, keep=SWAPPED.keep[1:], swap=(JointSwap(op=0, out_after=0, in_at=4),))
    assert JUDGE.decision(soon, early).objective_us == 13 + (1 + 1) + 4 + 2 + 9
    waiting = replace(reading, ops=tuple(replace(one, read_us=0, host_waits=bool(one.read_us)) for one in ops))
    assert base_us(waiting) == base_us(reading) - 3


def test_what_is_sent_without_a_wait_by_hand() -> None:
    """Launches take 1 µs each. Op 1 ends at 8, what it sends has left at 11; op 2 has long been launched.

    Where op 0 leaves behind itself, from 6 to 10, that has left at 13 only.
    """
    ops = [replace(one, launch_us=1, sent_us=3 if i == 1 else 0) for i, one in enumerate(CHAIN.ops)]
    sending = replace(CHAIN, budget_bytes=11, launch_us=1, ops=(ops[0], replace(ops[1], inputs=()), *ops[2:]))
    early = replace(SWAPPED, keep=SWAPPED.keep[1:], swap=(JointSwap(op=0, out_after=0, in_at=4),))
    assert base_us(sending) == 11 + 1 + 4 + 9
    assert JUDGE.decision(sending, early).objective_us == 13 + 1 + 4 + 2 + 9
    waiting = replace(sending, ops=tuple(replace(one, sync="stream") if one.sent_us else one for one in sending.ops))
    assert JUDGE.decision(waiting, early).objective_us == 13 + (1 + 1) + 4 + 2 + 9


def test_a_host_that_waits_for_the_device_waits_for_what_moves() -> None:
    """Launches take 1 µs each. Op 0 leaves from 6 to 10, beside ops 1 and 2, which are done at 8 and 9.

    Behind op 2 the host has waited at 9 for the stream, at 10 for the device: so op 3 ends at 14 or 15, and op 0 is
    back 2 µs later.
    """
    ops = [replace(one, launch_us=1, inputs=() if i in (1, 2) else one.inputs) for i, one in enumerate(CHAIN.ops)]
    early = replace(SWAPPED, keep=SWAPPED.keep[1:], swap=(JointSwap(op=0, out_after=0, in_at=4),))
    for sync, end in (("stream", 14), ("device", 15)):
        synced = [replace(one, sync=sync if i == 2 else None) for i, one in enumerate(ops)]
        problem = replace(CHAIN, budget_bytes=30, launch_us=1, ops=tuple(synced))
        assert (base_us(problem), JUDGE.decision(problem, early).objective_us) == (14 + 9, end + 2 + 9)


class Counted(list[Entry]):
    """A list of entries that counts how often it is walked through."""

    walks = 0

    def __iter__(self) -> Iterator[Entry]:
        self.walks += 1
        return super().__iter__()


def test_entries_are_not_walked_through_stage_by_stage() -> None:
    """With 1,500 transfers in 5,000 stages that took 24 s, beside a solver's limit of four."""
    walks = set()
    for stages in (5, 40):
        problem = replace(CHAIN, ops=(*CHAIN.ops, *(op(1, 0) for _ in range(stages - 5))))
        entries = Counted([Entry(op=0, out_after=1, in_at=4, reader=4)])
        peaks = [9, 9, 6, 7, 7] + [1] * (stages - 5)
        assert end_us(problem, [{t} for t in range(stages)], peaks, entries) == 22 + stages
        walks.add(entries.walks)
    assert len(walks) == 1


def test_the_link_is_shared_where_it_says_so() -> None:
    ops = (*CHAIN.ops[:2], replace(CHAIN.ops[2], comm=True), *CHAIN.ops[3:])
    apart = replace(CHAIN, ops=ops, budget_bytes=14)
    assert JUDGE.decision(apart, SWAPPED).objective_us == 23
    together = replace(apart, comm_shares_link=True)  # the communication waits for the swap-out, from 7 to 11
    assert JUDGE.decision(together, SWAPPED).objective_us == 27


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"compute": RUNS[:4]}, "stage 4 does not compute op 4"),
        ({"compute": (*RUNS, (9, 0))}, "stages and ops are 0…4"),
        ({"swap": (JointSwap(op=0, out_after=9, in_at=10),)}, "stages and ops are 0…4"),
        ({"swap": (JointSwap(op=0, out_after=4, in_at=4),)}, "not after stage 4"),
        ({"swap": SWAPPED.swap * 2}, "op 0 leaves a second time before stage 4 reads it"),
        (
            {"swap": tuple(JointSwap(op=0, out_after=t, in_at=k) for t, k in ((1, 3), (3, 4))), "keep": STAYING},
            "op 0 leaves a second time before stage 4 reads it",
        ),
        ({"swap": ()}, "stage 4 keeps op 0, which stage 3 neither kept nor computed"),
        ({"swap": (JointSwap(op=0, out_after=2, in_at=4),)}, "leaves after stage 2, which neither keeps nor computes"),
        ({"keep": SWAPPED.keep[:-1]}, "returns at stage 4, which does not keep it"),
        ({"keep": (*SWAPPED.keep, (2, 0))}, "is away in stage 2, which keeps it"),
        ({"compute": (*RUNS, (3, 0))}, "is away in stage 3, which computes it"),
        ({"keep": [pair for pair in SWAPPED.keep if pair != (3, 2)]}, "whose input 2 is not kept or recomputed"),
        ({"keep": (*SWAPPED.keep, (2, 0), (3, 0)), "swap": ()}, "stage 2 has 10 bytes in use, budget 9"),
    ],
)
def test_each_rule_is_kept(change: dict[str, object], said: str) -> None:
    verdict = JUDGE.decision(CHAIN, replace(SWAPPED, **change))
    assert verdict.objective_us is None
    assert any(said in violation for violation in verdict.violations), verdict.violations


def test_what_returns_is_read() -> None:
    unread = (*CHAIN.ops[:4], op(9, 1, 3))
    verdict = JUDGE.decision(replace(CHAIN, ops=unread), SWAPPED)
    assert verdict.violations == ("swap[0]: op 0 returns at stage 4 and is gone before any op reads it",)


def test_limits_beside_memory() -> None:
    host = replace(CHAIN, host_budget_bytes=3)
    assert "the host holds 4 bytes" in JUDGE.decision(host, SWAPPED).violations[0]
    work = replace(CHAIN, ops=(*CHAIN.ops[:4], op(9, 1, 0, 3, work=3)))
    assert "stage 4 has 10 bytes" in JUDGE.decision(work, SWAPPED).violations[0]
    window = replace(CHAIN, ops=(*CHAIN.ops[:3], op(5, 1, 1, 2, comm=True, work=3), CHAIN.ops[4]))
    hidden = replace(AGAIN, compute=(*AGAIN.compute, (3, 0)))  # 1 + 4 + 1 are kept, and 4 made beside 1 + 3
    assert "stage 3 has 14 bytes" in JUDGE.decision(window, hidden).violations[0]
    once = replace(CHAIN, ops=(op(5, 4, replay=False), *CHAIN.ops[1:]))
    assert "must not run twice" in JUDGE.decision(once, AGAIN).violations[0]


def test_claims_of_files_are_judged() -> None:
    raw = plan_to_raw(
        PlanFile(
            kind="joint",
            problem_sha256=None,
            solver="hand",
            engine=None,
            seed=0,
            status="feasible",  # type: ignore[arg-type]
            objective_us=25,
            bound_us=None,
            base_us=20,
            least_budget_bytes=None,
            solve_time_s=0.0,
            reason=None,
            certificate=None,
            decision=None,
        )
    )
    raw["decision"] = {"compute": [list(pair) for pair in RUNS] + [[4, 0]], "keep": [list(pair) for pair in AGAIN.keep]}
    said = check_plan(CHAIN, plan_from_raw(raw)).violations
    assert said == (
        "objective_us is 25, but the decision takes 26",
        "base_us is 20, but with unlimited memory it is 21",
    )


def test_the_least_budget_is_exact() -> None:
    assert JUDGE.least_budget_bytes is not None and JUDGE.is_feasible is not None
    for seed in range(12):
        problem = replace(random_problem(seed), host_budget_bytes=None)
        least, most = JUDGE.least_budget_bytes(problem)
        assert least == most
        below, at = (replace(problem, budget_bytes=budget) for budget in (least - 1, least))
        if len(problem.ops) < 6:
            assert optimum(at) is not None
            assert least == 0 or optimum(below) is None
        assert JUDGE.is_feasible(at) and not JUDGE.is_feasible(below)


def three(seed: int) -> JointProblem:
    """A problem of three ops, in which all that may be decided can be written down."""
    source = random.Random(f"three {seed}")
    problem = random_problem(2 * seed + 1)
    inputs = ((), (0,), source.choice([(0,), (0, 1)]))
    ops = tuple(replace(op, inputs=reads) for op, reads in zip(problem.ops, inputs, strict=False))
    least = max(o.workspace_bytes + sum(ops[i].output_bytes for i in {t, *o.inputs}) for t, o in enumerate(ops))
    budget = problem.static_bytes + least + source.randint(0, 2)
    return replace(problem, ops=ops, budget_bytes=budget, replays_from=0)


@pytest.mark.parametrize("seed", range(14))
def test_the_best_of_all_decisions_is_the_optimum(seed: int) -> None:
    """Every R, every S, every list of swaps, judged: the brute force of the kind finds the same least time."""
    problem, best = three(seed), None
    pairs = [(1, 0), (2, 0), (2, 1)]
    entries = [JointSwap(op=i, out_after=t, in_at=k) for i, t, k in ((0, 0, 1), (0, 0, 2), (0, 1, 2), (1, 1, 2))]
    subsets = list(chain.from_iterable(combinations(pairs, size) for size in range(4)))
    lists = list(chain.from_iterable(permutations(entries, size) for size in range(4)))
    for again, kept, swaps in product(subsets, subsets, lists):
        plan = JointPlan(compute=((0, 0), (1, 1), (2, 2), *again), keep=kept, swap=swaps)
        verdict = JUDGE.decision(problem, plan)
        if verdict.objective_us is not None and (best is None or verdict.objective_us < best):
            best = verdict.objective_us
    assert best == optimum(problem)
