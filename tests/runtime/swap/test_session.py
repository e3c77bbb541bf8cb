"""One line keeps an ordinary training loop within a budget, and changes no number."""

import logging
import math
from contextlib import nullcontext
from functools import cache

import msgspec
import pytest
import torch

from experiments.models.gpt import GptShape
from runtime.device import DEFAULT_HARDWARE, use_sim
from runtime.device.native import core
from runtime.execute.executor import HostMemoryShort
from runtime.swap.report import SessionReport
from runtime.swap.session import Session, session
from runtime.swap.stages import StageSettings
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import HOST, Link
from tests.accelerators import repeatable
from tests.runtime.swap.training import SHORT, Program, Ran, Trainer, run, steadily

STEPS = 13
SOON = StageSettings(warm_up_iterations=0, policies=2)
"""Policies from the second iteration on: for tests of what follows."""


@cache
def unlimited(program: Program) -> Ran:
    """The same without a session, on a device that has room."""
    return run(program, torch.device("sim", 0))


STEADY = steadily(STEPS)


def told(ran: Ran) -> SessionReport:
    assert ran.report is not None
    return ran.report


def share_of_need(program: Program, share: float) -> int:
    """That share of the program's peak."""
    return int(share * unlimited(program).peak_bytes)


@pytest.mark.parametrize("share", [0.9, 0.8, 0.7, 0.6, 0.5])
def test_a_loop_stays_within_its_budget_from_its_first_iteration_to_the_last_bit(
    device: torch.device, share: float
) -> None:
    budget = share_of_need(STEADY, share)
    ran = run(STEADY, device, budget)
    assert ran.equals(unlimited(STEADY))
    assert ran.peak_bytes <= budget
    assert all(iteration.peak_bytes <= budget for iteration in ran.iterations)
    assert len(ran.iterations) == STEPS
    assert told(ran).counts.passive > 0  # the first iterations have no policy yet


def test_a_policy_replaces_passive_swaps(device: torch.device) -> None:
    ran = run(STEADY, device, share_of_need(STEADY, 0.8))
    report = told(ran)
    assert report.stage == "Stable"
    kept = [policy for policy in report.policies if policy.kept]
    assert len(kept) == 1 and len(report.policies) == 5 + 3, "three more, as launching copies takes long here"
    measured = [policy.duration_us for policy in report.policies if policy.duration_us is not None]
    assert len(measured) == 8 - sum("the same as" in (policy.reason or "") for policy in report.policies)
    assert kept[0].duration_us == min(measured)
    last = ran.iterations[-1]
    assert last.counts.matched == kept[0].swaps > 0
    assert last.counts.unmatched == last.counts.passive == last.counts.fallbacks == 0
    assert report.unplanned_us is not None and report.unplanned_us >= (kept[0].duration_us or 0.0)


def reading(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
    return [trainer.step().cpu() for _ in range(STEPS)]  # every iteration leaves as much on the device as the last


def test_the_need_is_reconstructed_while_swaps_go_on(device: torch.device) -> None:
    report = told(run(reading, device, share_of_need(reading, 0.8)))
    assert report.unswapped_peak_bytes == unlimited(reading).peak_bytes


def test_a_loop_that_fits_is_left_alone(device: torch.device) -> None:
    ran = run(STEADY, device, "100%")
    assert ran.equals(unlimited(STEADY))
    assert told(ran).counts.swapped_out == 0
    assert any("nothing is swapped" in remark for remark in told(ran).remarks)


def validating(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
    losses = []
    for number in range(16):
        losses.append(trainer.step())
        if number % 7 == 6:
            losses.append(trainer.validate())
    return losses


def skipping(trainer: Trainer, following: Session | None) -> list[torch.Tensor]:
    losses = []
    for number in range(16):
        losses.append(trainer.step(skip=number % 6 == 5))
        if following is not None:
            following.step()
    return losses


def shortening(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
    return [trainer.step(tokens=SHORT if number in (6, 7, 12) else None) for number in range(16)]


@pytest.mark.parametrize("matching", ["features", "index"])
@pytest.mark.parametrize("record_stream", ["custom", "printed", "torch"])
@pytest.mark.parametrize(
    ("program", "boundaries"), [(validating, "optimizer"), (skipping, "given"), (shortening, "optimizer")]
)
def test_a_sequence_that_changes_costs_time_but_never_a_bit(
    device: torch.device, program: Program, boundaries: str, matching: str, record_stream: str
) -> None:
    budget = share_of_need(program, 0.75)
    ran = run(
        program,
        device,
        budget,
        boundaries=boundaries,
        matching=matching,
        record_stream=record_stream,
        stages=SOON,
    )
    assert ran.equals(unlimited(program))
    assert ran.peak_bytes <= budget


def test_a_large_change_makes_policies_anew(device: torch.device) -> None:
    ran = run(validating, device, share_of_need(validating, 0.75), stages=SOON)
    report = told(ran)
    assert report.generations == report.regenerations + 1 > 1
    stages = [iteration.stage for iteration in ran.iterations]
    assert "WarmUp" in stages[stages.index("Stable") :]


def test_another_length_is_no_other_sequence_and_tensors_are_found_all_the_same(device: torch.device) -> None:
    ran = run(shortening, device, share_of_need(shortening, 0.75), stages=SOON)
    short = ran.iterations[12]
    assert short.stage == "Stable"
    assert short.counts.matched > 0 and short.counts.unmatched == short.counts.fallbacks == 0


def test_below_the_working_set_a_sentence_says_so(device: torch.device) -> None:
    trainer = Trainer(device)
    with pytest.raises(torch.OutOfMemoryError, match=r"budget of .* raise the budget") as caught, session("200KB"):
        trainer.step()
    assert "\n" not in str(caught.value)
    assert trainer.step().isfinite()


WEIGHTY = GptShape(layers=1, width=64, heads=2, context=16, batch=1)
"""More parameters than activations: the optimizer's operators need more at once than half of all."""


def test_what_could_not_come_back_is_told_as_what_it_is(device: torch.device) -> None:
    """The operator only finds its operand on the host; why it stayed there is the error."""
    budget = run(steadily(2), device, shape=WEIGHTY).peak_bytes // 2
    trainer = Trainer(device, WEIGHTY)
    told_so = pytest.raises(torch.OutOfMemoryError, match=r"budget of .* raise the budget")
    with told_so as caught, session(budget, device=device):
        trainer.step()
    assert "swapped out to the host" in str(caught.value.__cause__)

    following = session(budget, device=device)
    with pytest.raises(torch.OutOfMemoryError, match="does not fit"):
        try:
            with pytest.raises(RuntimeError, match="swapped out to the host"):
                trainer.step()
        finally:
            following.close()
    assert trainer.step().isfinite()


def test_after_an_error_in_mid_step_everything_is_there(device: torch.device) -> None:
    budget = share_of_need(STEADY, 0.6)

    def interrupted(trainer: Trainer, limited: bool) -> list[torch.Tensor]:
        torch.manual_seed(5)
        trainer.step()
        within = session(budget, device=device) if limited else nullcontext()
        with pytest.raises(ZeroDivisionError), within:
            hook = trainer.model.blocks[1].register_full_backward_hook(lambda *_: 1 / 0)
            trainer.step()
        hook.remove()
        assert core.swapped_out_storages() == 0
        trainer.step()
        return trainer.state()

    pairs = zip(interrupted(Trainer(device), True), interrupted(Trainer(device), False), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_a_program_may_catch_an_error_and_go_on(device: torch.device) -> None:
    budget = share_of_need(STEADY, 0.6)

    def stumbling(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
        losses = []
        for number in range(8):
            if number == 3:
                hook = trainer.model.head.register_forward_hook(lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    trainer.step()
                hook.remove()
            losses.append(trainer.step())
        return losses

    ran = run(stumbling, device, budget)
    assert ran.equals(unlimited(stumbling))
    assert ran.peak_bytes <= budget


def test_an_inner_session_suspends_the_outer_one(device: torch.device) -> None:
    trainer, other = Trainer(device), Trainer(device)
    need = unlimited(STEADY).peak_bytes
    with session(int(1.5 * need), device=device) as outer:
        trainer.step()
        with session(need, device=device) as inner:
            assert (outer.active, inner.active) == (False, True)
            other.step()
        assert (outer.active, inner.active) == (True, False)
        trainer.step()
    assert (outer.active, inner.active) == (False, False)
    assert outer.report().iterations == 2
    assert inner.report().iterations == 1


def test_a_pause_lifts_the_limit_and_keeps_the_policy(device: torch.device) -> None:
    budget = share_of_need(STEADY, 0.7)

    def pausing(trainer: Trainer, following: Session | None) -> list[torch.Tensor]:
        losses = [trainer.step() for _ in range(6)]
        if following is not None:
            following.pause()
        losses.append(trainer.validate())
        if following is not None:
            following.resume()
        return losses + [trainer.step() for _ in range(4)]

    ran = run(pausing, device, budget, stages=SOON)
    assert ran.equals(unlimited(pausing))
    assert [iteration.stage for iteration in ran.iterations][-4:] == ["Stable"] * 4
    assert ran.iterations[-1].counts.passive == 0


def test_a_plain_object_does_too(device: torch.device) -> None:
    trainer = Trainer(device)
    following = session("50%", device=device)
    try:
        trainer.step()
    finally:
        following.close()
    following.close()
    assert following.report().iterations == 1
    with pytest.raises(InvalidInput, match="closed"):
        following.resume()
    with pytest.raises(InvalidInput, match="closed"), following:
        trainer.step()


def test_a_host_that_is_short_is_named_where_the_device_is_too(device: torch.device) -> None:
    trainer = Trainer(device)
    with (
        pytest.raises(HostMemoryShort, match="host_limit_bytes=65536"),
        session(share_of_need(STEADY, 0.6), device=device, host_limit_bytes=1 << 16),
    ):
        trainer.step()


def test_boundaries_are_given_or_found(device: torch.device) -> None:
    with session(device=device) as found, pytest.raises(InvalidInput, match="optimizer"):
        found.step()
    with session(device=device, boundaries="given") as given:
        Trainer(device).step()
        assert given.report().iterations == 0
        given.step()
        assert given.report().iterations == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"budget": "0B"}, "budget of 0"),
        ({"boundaries": "epoch"}, "boundaries='epoch'"),
        ({"matching": "name"}, "matching='name'"),
        ({"record_stream": "none"}, "record_stream='none'"),
        ({"host_limit_bytes": -1}, "host_limit_bytes is -1"),
        ({"host_limit_bytes": 10**30}, "beyond any memory: give bytes"),
        ({"headroom": 1.0}, "headroom"),
        ({"sample_every": 0}, "sample_every is 0"),
        ({"solver": "dp"}, "kind 'partition'"),
        ({"device": "cpu"}, "no streams"),
        ({"device": "meta"}, "meta is not there"),
        ({"device": "tpu9"}, "'tpu9' is none that PyTorch knows"),
        ({"budget": math.nan}, "budget is nan"),
        ({"budget": True}, "budget is True"),
        ({"guard": "yes"}, "guard is 'yes'"),
        ({"host_limit_bytes": "1GiB"}, "host_limit_bytes is '1GiB': give bytes"),
        ({"headroom": "10%"}, "headroom is '10%'"),
        ({"sample_every": 1.5}, "sample_every is 1.5"),
        ({"stages": StageSettings}, "stages is <class"),
        ({"solver": ["greedy-swap"]}, "'greedy-swap': give PolicyChoice"),
        ({"optimizer": "adam"}, "optimizer is 'adam'"),
        ({"model": [1]}, r"model is \[1\]"),
        ({"hardware": "sim-small"}, "hardware is 'sim-small'"),
        ({"watch": 3}, "watch is 3"),
    ],
)
def test_what_means_nothing_is_refused_before_anything_is_followed(
    device: torch.device, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        session(**{"device": device, **options})  # type: ignore[arg-type]
    assert not core.swap_guard_is_on()


def test_the_log_says_what_happens(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="bayplan.swap"):
        run(STEADY, device, share_of_need(STEADY, 0.8))
    said = [record.getMessage() for record in caplog.records]
    for part in ("WarmUp -> GenPolicy", "policy 1 of 5 swaps", "is kept", "GenPolicy -> Stable"):
        assert any(part in line for line in said), part


def test_a_link_that_both_directions_share_is_no_obstacle(device: torch.device) -> None:
    link = Link(a="0", b=HOST, bytes_per_s=16_000_000_000, latency_us=10.0, duplex="half")
    use_sim(msgspec.structs.replace(DEFAULT_HARDWARE, links=(link,)))
    ran = run(STEADY, device, share_of_need(STEADY, 0.75))
    assert ran.equals(unlimited(STEADY))
    assert any(policy.kept for policy in told(ran).policies)


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_a_gpu_keeps_its_budget_too(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """With repeatable kernels; the caching allocator holds whole segments, hence a larger model and headroom."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with repeatable():
        shape = GptShape(layers=8, width=512, heads=8, context=512, batch=16)
        expected = run(STEADY, device, shape=shape)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        budget = int(0.75 * expected.peak_bytes)
        ran = run(STEADY, device, budget, shape=shape, headroom=0.1)
    assert ran.equals(expected)
    assert torch.cuda.max_memory_reserved(device) <= budget
    assert told(ran).counts.swapped_out > 0


def test_a_report_knows_the_peak_before_the_first_boundary(device: torch.device) -> None:
    with session("1MiB", device=device) as running:
        torch.ones(1000, device=device)
        report = running.report()
    assert report.iterations == 0
    assert 4000 <= report.peak_bytes <= report.budget_bytes


def test_a_refusal_names_the_operator_that_needs_so_much(device: torch.device) -> None:
    """All layers and steps of a recurrence are one operator: what it has made cannot leave while it runs."""
    recurrent, data = torch.nn.GRU(32, 32).to(device), torch.randn(64, 64, 32).to(device)
    small = 2 << 20
    with pytest.raises(torch.OutOfMemoryError, match="stays while it runs") as refused, session(small, device=device):
        recurrent(data)[0].sum().backward()
    assert "came in iteration 1, from aten::gru.input" in str(refused.value)
