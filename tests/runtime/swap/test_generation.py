"""Policies are made, executed and measured one by one, and the best is kept."""

import gc
from dataclasses import replace

import msgspec
import pytest

from runtime.swap import generation as generations
from runtime.swap.generation import LEFT, Generation
from runtime.swap.policy import Policy
from runtime.swap.portfolio import FEW_RESIDENTS, FEWEST, GAPS, RESIDENTS, PolicyChoice
from runtime.swap.report import PolicyResult, SessionCounts
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.schedule import Schedule
from solvers.timeline.segments import SegmentSettings, StepHeld
from tests.runtime.swap.chain import LAYER_BYTES, STATIC_BYTES, Seen, chain_profiled, hardware, with_state

LAYERS = 12
PEAK_BYTES = STATIC_BYTES + LAYERS * LAYER_BYTES
BUDGET_BYTES = PEAK_BYTES - 4 * LAYER_BYTES
CHOICES = (
    PolicyChoice(),
    PolicyChoice(parameters={"layers": 8, "weight": 4.0}),
    PolicyChoice(parameters={"layers": 3, "printed": True}),
)
"""Three that differ on the chain."""


def generation(
    budget_bytes: int = BUDGET_BYTES,
    choices: tuple[PolicyChoice, ...] = CHOICES,
    host_bytes: int | None = None,
) -> Generation:
    return Generation(1, choices, hardware(), budget_bytes, host_bytes)


def test_the_fastest_as_measured_is_kept_whatever_was_predicted() -> None:
    made = generation()
    proposed = []
    for duration_us in (900.0, 700.0, 800.0):
        proposed.append(made.propose(chain_profiled(LAYERS)))
        made.measured(duration_us, SessionCounts())
    assert made.exhausted
    assert made.propose(chain_profiled(LAYERS)) is None
    assert not made.open
    assert made.best() is proposed[1]
    assert made.kept == 1
    assert [result.kept for result in made.results] == [False, True, False]


def test_the_fastest_iteration_so_far_stands_for_one_without_stalls() -> None:
    made = generation()
    fastest = [made.fastest_us]
    for duration_us in (900.0, 700.0, 800.0):
        made.measured(duration_us, SessionCounts())
        made.propose(chain_profiled(LAYERS))
        fastest.append(made.fastest_us)
    assert fastest == [None, 900.0, 700.0, 700.0]


def test_of_two_that_are_as_fast_the_one_with_less_on_demand_is_kept() -> None:
    made = generation()
    for fetched in (2, 1, 3):
        made.propose(chain_profiled(LAYERS))
        made.measured(700.0, SessionCounts(fetched=fetched))
    made.best()
    assert made.kept == 1


def test_a_policy_frees_what_the_budget_lacks() -> None:
    policy = generation().propose(chain_profiled(LAYERS))
    assert policy is not None
    assert policy.bytes >= PEAK_BYTES - BUDGET_BYTES


def releases(schedule: Schedule | None) -> int:
    """How often a schedule frees a block."""
    return 0 if schedule is None else sum(action.do == "release" for action in schedule.actions)


@pytest.mark.parametrize("least", [1, 5, 6, 8, 10])
def test_policies_leave_segments_the_least_listed_share_that_they_need_and_more_where_none_is_enough(
    monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    """Here blocks find their segments once so many of them leave."""

    def held(graph: OpGraph, schedule: Schedule | None, settings: SegmentSettings) -> StepHeld:
        return StepHeld(0, 0, retries=int(releases(schedule) < least), refusal=None)

    monkeypatch.setattr(generations, "held_by_steps", held)
    made = Generation(1, CHOICES[:1], hardware(), BUDGET_BYTES, segments=SegmentSettings())
    assert made.propose(chain_profiled(LAYERS)) is not None

    profiled, plan_at = chain_profiled(LAYERS), CHOICES[0].planner()
    aims = [int((1 - share) * BUDGET_BYTES) for share in (0, *LEFT)]
    enough = [aim for aim in aims if releases(plan_at(profiled.graph, hardware(), aim).plan) >= least]
    assert made._aim_bytes == enough[0] if enough else made._aim_bytes < aims[-1]
    assert releases(plan_at(profiled.graph, hardware(), made._aim_bytes).plan) >= least


def test_where_a_second_run_never_comes_the_first_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "held_by_steps", lambda *_: StepHeld(0, 0, retries=0, refusal=None))
    made = Generation(1, CHOICES[:1], hardware(), BUDGET_BYTES, segments=SegmentSettings())
    made.propose(chain_profiled(LAYERS))
    made.measured(700.0, SessionCounts(passive=1))
    tried = made.propose(chain_profiled(LAYERS))
    made.measured(600.0, SessionCounts(moved=1))
    assert tried is not None and made.trial is tried
    for _ in range(2):
        made.fail("not profiled")
    assert not made.open and made.best() is tried and made.kept == 1 and made.results[1].duration_us == 600.0


def test_an_iteration_that_fits_needs_no_policy() -> None:
    made = generation(PEAK_BYTES)
    assert made.propose(chain_profiled(LAYERS)) is None
    assert not made.open
    assert made.remark is not None and "nothing is swapped" in made.remark
    assert made.unswapped_peak_bytes == PEAK_BYTES
    assert made.best() is None


@pytest.mark.parametrize(("left", "fits"), [(0, True), (1, False)])
def test_where_nothing_left_none_is_needed_whatever_a_replay_of_segments_asks_for(
    monkeypatch: pytest.MonkeyPatch, left: int, fits: bool
) -> None:
    monkeypatch.setattr(generations, "held_by_steps", lambda *_: StepHeld(0, 0, retries=1, refusal=None))
    made = Generation(1, CHOICES[:1], hardware(), PEAK_BYTES, segments=SegmentSettings())
    made.measured(900.0, SessionCounts(swapped_out=left))
    made.propose(chain_profiled(LAYERS))
    assert made.fits == fits


def test_below_what_policies_reach_they_do_what_they_can() -> None:
    made = generation(STATIC_BYTES)
    policy = made.propose(chain_profiled(LAYERS))
    assert policy is not None
    assert len(policy.targets) >= LAYERS - 2
    assert made.remark is not None and f"the least is {STATIC_BYTES + LAYER_BYTES} bytes" in made.remark


@pytest.mark.parametrize(("unplanned_us", "kept"), [(600.0, None), (695.0, 1), (800.0, 1)])
def test_a_policy_that_passive_swaps_clearly_outrun_is_not_kept(unplanned_us: float, kept: int | None) -> None:
    made = generation()
    made.measured(unplanned_us, SessionCounts())
    for duration_us in (900.0, 700.0, 800.0):
        made.propose(chain_profiled(LAYERS))
        made.measured(duration_us, SessionCounts())
    assert (made.best() is None) == (kept is None)
    assert made.kept == kept


def test_a_policy_that_needs_too_much_of_the_host_is_not_executed() -> None:
    made = generation(host_bytes=LAYER_BYTES)
    assert made.propose(chain_profiled(LAYERS)) is None
    assert not made.open
    assert all("host_limit_bytes" in str(result.reason) for result in made.results)


def test_a_policy_that_was_tried_already_is_not_tried_again() -> None:
    made = generation(choices=(PolicyChoice(), PolicyChoice(parameters={"layers": 32})))
    assert made.propose(chain_profiled(LAYERS)) is not None
    made.measured(700.0, SessionCounts())
    assert made.propose(chain_profiled(LAYERS)) is None
    assert [result.reason for result in made.results] == [None, "the same as greedy-swap"]
    assert not made.open


def launching(launch_us: float, bytes_per_s: int = 16_000_000_000) -> Hardware:
    """The made-up machine, whose host needs so long to launch a kernel or a copy."""
    machine = hardware(bytes_per_s)
    return msgspec.structs.replace(machine, devices=(msgspec.structs.replace(machine.devices[0], launch_us=launch_us),))


@pytest.mark.parametrize(
    ("varies", "launch_us", "others"),
    [
        (False, 0.0, []),
        (True, 0.0, [FEWEST, RESIDENTS]),
        (True, 5.0, [FEWEST, RESIDENTS]),
        (False, 5.0, [FEWEST, FEW_RESIDENTS]),
        (False, 0.5, []),
    ],
)
def test_few_swaps_are_tried_as_well_where_sizes_vary_or_launches_take_long(
    varies: bool, launch_us: float, others: list[PolicyChoice]
) -> None:
    """Of 900 us five swaps take 50 us to launch, or 5."""
    made = Generation(1, (CHOICES[0], FEWEST, RESIDENTS, FEW_RESIDENTS), launching(launch_us), BUDGET_BYTES)
    made.varies = varies
    while made.open:
        made.propose(chain_profiled(LAYERS))
        made.measured(900.0, SessionCounts())
    assert [result.choice for result in made.results] == [CHOICES[0], *others]


def test_states_leave_in_loops_of_one_size_too_where_launches_take_long_and_that_is_quicker() -> None:
    profiled = with_state(chain_profiled(LAYERS), state_bytes=4 * LAYER_BYTES)
    for few_us, kept in ((880.0, 1), (910.0, 0)):
        made = Generation(1, (CHOICES[0], FEW_RESIDENTS), launching(5.0, 10**12), BUDGET_BYTES + 4 * LAYER_BYTES)
        made.propose(profiled)
        made.measured(900.0, SessionCounts())
        policy = made.propose(profiled)
        assert policy is not None and [bool(target.storage) for target in policy.targets] == [True]
        made.measured(few_us, SessionCounts())
        made.best()
        assert made.kept == kept


@pytest.mark.parametrize("segments", [None, SegmentSettings()])
def test_what_waits_where_no_pass_uses_it_leaves_where_bytes_are_exact(segments: SegmentSettings | None) -> None:
    """A tensor that the forward pass's first operator reads, and then the update: without it all would fit."""
    profiled = with_state(chain_profiled(LAYERS), state_bytes=4 * LAYER_BYTES)
    *others, state = profiled.graph.tensors
    graph = msgspec.structs.replace(
        profiled.graph, tensors=(*others, msgspec.structs.replace(state, uses=(0, *state.uses)))
    )
    read = Seen(op=0, storage=2000, key=77, ordinal=0, position=1, result=False, pass_bytes=0)
    sightings = {**profiled.sightings, (int(state.id), 0): read}
    made = Generation(1, (CHOICES[0], GAPS), launching(5.0, 10**12), BUDGET_BYTES + 4 * LAYER_BYTES, None, segments)
    made.varies = True
    policies = []
    while made.open:
        seen = profiled._replace(graph=graph, sightings=sightings)  # type: ignore[arg-type]
        policies.append(made.propose(seen))
        made.measured(900.0, SessionCounts())
    assert (GAPS in [result.choice for result in made.results]) == (segments is None)
    if segments is None:
        assert policies[1] is not None and 4 * LAYER_BYTES in [target.bytes for target in policies[1].targets]
        assert made.best() == policies[1] and made.results[1].swaps < made.results[0].swaps


@pytest.mark.parametrize("segments", [None, SegmentSettings()])
def test_states_may_leave_where_sizes_vary_and_bytes_are_exact(segments: SegmentSettings | None) -> None:
    profiled = with_state(chain_profiled(LAYERS), state_bytes=4 * LAYER_BYTES)
    made = Generation(1, (CHOICES[0], RESIDENTS), hardware(10**12), BUDGET_BYTES + 4 * LAYER_BYTES, None, segments)
    made.varies = True
    made.propose(profiled)
    made.measured(900.0, SessionCounts())
    policy = made.propose(profiled)
    if segments is not None:
        assert policy is None and RESIDENTS not in [result.choice for result in made.results]
        return
    assert policy is not None and [bool(target.storage) for target in policy.targets].count(True) == 1
    made.measured(900.0, SessionCounts())
    assert made.best() == policy, "one swap frees what four did"
    assert made.results[1].swaps < made.results[0].swaps


def test_where_a_launch_costs_time_fewer_swaps_promise_more() -> None:
    """Of what Eq. 1 says of both, the one that swaps more is a little better."""
    few, many = (PolicyResult(choice=CHOICES[0], generation=1, base_us=1000, swaps=swaps) for swaps in (5, 20))
    few, many = replace(few, objective_us=1020), replace(many, objective_us=1000)
    for launch_us, best in ((0.0, many), (5.0, few)):
        made = Generation(1, CHOICES, launching(launch_us), BUDGET_BYTES)
        made.varies = True
        made.results = [replace(one, duration_us=1.0, counts=SessionCounts()) for one in (few, many)]
        made._policies = [None, None]
        made.best()
        assert made.kept == [few, many].index(best)


def test_tensors_that_cannot_be_recognised_stay_and_are_counted() -> None:
    made = generation()
    whole = made.propose(chain_profiled(LAYERS))
    part = generation().propose(chain_profiled(LAYERS, unseen=frozenset({0})))
    assert whole is not None and part is not None
    assert len(part.targets) == len(whole.targets) - 1


def test_a_planner_that_fails_is_passed_over() -> None:
    broken = PolicyChoice(parameters={"layers": 0})
    made = generation(choices=(broken, PolicyChoice()))
    assert made.propose(chain_profiled(LAYERS)) is not None
    assert "layers is 0" in str(made.results[0].reason)
    assert made.results[1].reason is None


def test_a_planner_s_own_fault_stops_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def planner(choice: PolicyChoice, host: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(PolicyChoice, "planner", planner)
    made = generation()
    assert made.propose(chain_profiled(LAYERS)) is None
    assert [result.reason for result in made.results] == ["ZeroDivisionError()"] * 3


def test_iterations_that_cannot_be_profiled_end_the_generation_in_time() -> None:
    made = generation()
    for failure in range(len(CHOICES)):
        assert made.open, failure
        made.fail("the operators differ")
    assert not made.open
    assert made.best() is None


@pytest.mark.parametrize("matched", [0, 3])
def test_a_policy_that_was_never_executed_is_never_kept(matched: int) -> None:
    made = generation()
    made.propose(chain_profiled(LAYERS))
    if matched:
        made.measured(1.0, SessionCounts(matched=matched))
    made.propose(chain_profiled(LAYERS))
    assert (made.best() is not None) == (matched > 0)


def policies_alive() -> int:
    gc.collect()
    return sum(type(thing) is Policy for thing in gc.get_objects())


def test_policies_that_are_not_chosen_take_no_memory() -> None:
    before, made = policies_alive(), generation()
    while made.propose(chain_profiled(LAYERS)) is not None:
        made.measured(5000.0, SessionCounts(matched=1))
    assert policies_alive() > before + 1
    best = made.best()
    assert best is not None and policies_alive() == before + 1
    assert made.trial is None and len(made.results) == len(CHOICES)


def test_where_sizes_vary_what_no_policy_can_help_is_left_to_passive_swaps() -> None:
    """The update needs more than the budget, while nothing that may leave can be away."""
    profiled = chain_profiled(LAYERS)
    graph = msgspec.structs.replace(
        profiled.graph, memory_bytes=(*profiled.graph.memory_bytes[:-1], PEAK_BYTES + LAYER_BYTES)
    )
    targets = {}
    for varies in (False, True):
        made = generation()
        made.varies = varies
        policy = made.propose(profiled._replace(graph=graph))
        assert made.remark is not None and "passive swaps do the rest" in made.remark
        assert ("for all other operators" in made.remark) == varies
        targets[varies] = 0 if policy is None else len(policy.targets)
    assert targets[False] == 0 < 4 <= targets[True]


def test_promises_count_the_swaps_of_iterations_of_all_sizes() -> None:
    """With residents, which small ones spare less, a little more."""
    machine = hardware()
    device = msgspec.structs.replace(machine.devices[0], launch_us=5.0)
    made = Generation(1, CHOICES, msgspec.structs.replace(machine, devices=(device,)), BUDGET_BYTES)
    made.varies, made.shares = True, (0.5, 1.0)
    one, other = (
        PolicyResult(choice=CHOICES[0], generation=1, base_us=1000, objective_us=1000, swaps=swaps, mean_swaps=mean)
        for swaps, mean in ((20, 9.9), (15, 10.0))
    )
    assert made._promised(one) < made._promised(other)
    resident = replace(one, choice=RESIDENTS)
    assert made._promised(other) < made._promised(resident)
    made.shares = (1.0, 1.0)
    assert made._promised(resident) < made._promised(other), "where sizes do not spread it counts as any other"
    profiled = chain_profiled(LAYERS)
    made.shares = (0.1, 1.0)
    assert made.propose(profiled) is not None
    assert made.results[0].mean_swaps == made.results[0].swaps / 2, "an iteration of a tenth needs none"
