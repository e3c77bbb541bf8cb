"""`bayplan fit`: will it fit, before the device is there."""

import json
from typing import Any

import pytest

from tests.experiments.commands.console import Outcome, call, refused

PROGRAM = "tests.experiments.strangers:parts"


def fit(*arguments: object, hardware: str = "sim-small") -> Outcome:
    return call("fit", *arguments, "--hardware", hardware)


def told(*arguments: object, hardware: str = "sim-small") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fit(*arguments, "--json", hardware=hardware).out)
    return found


def rows(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["technique"]: row for row in answer["rows"]}


@pytest.mark.usefixtures("plain_sim")
def test_a_program_that_fits_in_every_way() -> None:
    done = fit(PROGRAM)
    assert (done.code, done.err) == (0, "")
    assert done.figure("device") == "sim-small, 4294967296 bytes (4.00 GiB)"
    assert done.figure("outside tensors") == "0 bytes: the simulated device has no driver"
    table = [line.split("  ")[1] for line in done.out.splitlines() if "yes" in line.split()]
    recomputed = ["full recomputation", "selective recomputation", "planned recomputation"]
    assert table == ["plain", *recomputed, "swapping", "both together"]
    assert "nothing ran on a GPU" in done.out


@pytest.mark.usefixtures("plain_sim")
def test_a_program_that_fits_in_bytes_but_not_in_segments() -> None:
    """Half a megabyte of tensors: the bytes fit into 1.9 MiB, the first segment takes 2."""
    answer = told(PROGRAM, "--budget", "1900KiB")
    assert answer["fits"] is False
    assert answer["format"] == "bayplan-fit/1"
    plain = rows(answer)["plain"]
    assert (plain["fits"], plain["fits_allocated"]) == (False, True)
    assert plain["margin_allocated_bytes"] == 1900 * 1024 - plain["allocated_bytes"]
    assert plain["margin_reserved_bytes"] == 1900 * 1024 - plain["least_reserved_bytes"] < 0
    assert sum(plain["peak"]["bytes_by_kind"].values()) == plain["peak"]["bytes"]
    assert any(remark.startswith("refused: a request of") for remark in plain["remarks"])
    again = fit(PROGRAM, "--budget", "1900KiB", "--technique", "plain")
    assert again.code == 1
    assert "no: fragmented" in again.out


@pytest.mark.usefixtures("plain_sim")
def test_a_percentage_is_of_the_plain_peak() -> None:
    answer = told(PROGRAM, "--budget", "50%", "--technique", "plain")
    assert answer["budget_bytes"] == answer["rows"][0]["allocated_bytes"] // 2
    assert answer["budget_how"] == "as given by --budget"


@pytest.mark.usefixtures("plain_sim")
def test_a_technique_that_cannot_be_told_is_a_row_all_the_same() -> None:
    """A single linear layer has no blocks to recompute."""
    answer = told("tests.experiments.commands.test_fit:one_layer")
    assert rows(answer)["full"]["reason"].startswith("cannot be told: the model Linear has no repeated blocks")
    assert rows(answer)["full"]["fits"] is None
    assert rows(answer)["plain"]["fits"] is True
    assert "unknown" in fit("tests.experiments.commands.test_fit:one_layer", "--technique", "full").out


def one_layer(device: Any) -> Any:
    import torch

    from tests.experiments.strangers import parts

    return parts(device, torch.nn.Linear(64, 64))


def test_a_shape_on_a_device_that_is_too_small_for_it() -> None:
    answer = told("--shape", "llama-2-7b", "--microbatch", 1, hardware="a100-sxm-80")
    assert answer["fits"] is False
    assert answer["outside"]["how"] == "assumed"
    assert answer["budget_bytes"] == answer["device_bytes"] - answer["outside"]["bytes"]
    least = {name: row["least_allocated_bytes"] for name, row in rows(answer).items()}
    assert least["full"] < least["selective"] < least["plain"]
    assert least["swap"] < least["plain"]
    states = rows(answer)["plain"]["peak"]["bytes_by_kind"]
    assert states["parameters"] * 6 == pytest.approx(states["optimizer states"], rel=1e-9)
    steps = {name: row["step_us"] for name, row in rows(answer).items()}
    assert steps["plain"] < steps["selective"] < steps["full"]


def test_a_shape_s_stage_holds_microbatches_in_flight() -> None:
    cut = ("--shape", "gpt-1.3b", "--microbatch", 2, "--tensor", 2, "--pipeline", 4, "--technique", "plain")
    first, last = (told(*cut, "--stage", stage, hardware="lynx-nvlink")["rows"][0] for stage in (0, 3))
    held = first["peak"]["bytes_by_kind"]["activations"], last["peak"]["bytes_by_kind"]["activations"]
    assert held[0] > 3 * held[1], "four microbatches against one"


def test_what_no_tensor_owns_can_be_set() -> None:
    cut = ("--shape", "gpt-300m", "--microbatch", 1, "--technique", "plain")
    answer = told(*cut, "--outside", "3GiB", hardware="a100-sxm-80")
    assert answer["outside"] == {"bytes": 3 << 30, "parts": {"given": 3 << 30}, "how": "given"}
    assert told(*cut, hardware="h200")["outside"]["parts"]["cuBLAS workspace"] == 32 << 20


def test_expandable_segments_leave_less_than_two_pages_where_blocks_are_large() -> None:
    cut = ("--shape", "gpt-1.3b", "--microbatch", 3, "--technique", "plain")
    fixed, grown = (told(*cut, *more, hardware="a100-sxm-80") for more in ((), ("--expandable-segments",)))
    assert (fixed["expandable"], grown["expandable"]) == (False, True)
    (row,) = grown["rows"]
    assert row["allocated_bytes"] == fixed["rows"][0]["allocated_bytes"]
    assert row["allocated_bytes"] <= row["reserved_bytes"] < 1.01 * row["allocated_bytes"]


SHAPE = ("--shape", "gpt-300m", "--microbatch", 1)


def test_attention_of_a_shape_is_said_and_can_be_set() -> None:
    """With flash attention neither scores nor probabilities wait: a layer keeps 5·a·s²·b bytes less, and a few more."""
    cut = (*SHAPE, "--technique", "plain")
    unfused, flash = (told(*cut, *more, hardware="h200") for more in ((), ("--attention", "flash")))
    assert (unfused["attention"], flash["attention"]) == ("unfused", "flash")
    layers, heads, sequence = 24, 16, 1024
    saved = unfused["rows"][0]["allocated_bytes"] - flash["rows"][0]["allocated_bytes"]
    assert saved == pytest.approx(layers * 5 * heads * sequence**2, rel=0.02)
    said = fit(*cut, hardware="h200").figure("attention")
    assert said.startswith("unfused: scores and probabilities of every layer stand in memory; --attention flash")


@pytest.mark.usefixtures("plain_sim")
def test_who_planned_and_of_what_segments_the_peak_is_made() -> None:
    answer = told(PROGRAM, "--budget", "1900KiB", "--technique", "swap", "--time-limit", 0.1)
    row = rows(answer)["swap"]
    assert answer["attention"] is None
    assert row["solver"] in row["asked"] == ["greedy-swap", "capuchin-swap", "milp-swap"], "2.0 of 1.9 MiB: near"
    assert sum(size * count for size, count in row["segments"]) == row["reserved_bytes"]
    out = fit(PROGRAM, "--budget", "1900KiB", "--technique", "swap", "--time-limit", 0.1).out
    assert "plans were tried of greedy-swap, capuchin-swap, milp-swap" in out
    assert "their segments do not: a request of 1 to 10 MiB takes a segment of 20 MiB" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give either MODULE:FACTORY or --shape NAME: one of them is the step"),
        ((PROGRAM, *SHAPE), "give either MODULE:FACTORY or --shape NAME: one of them is the step"),
        (
            (PROGRAM, "--microbatch", 4),
            "--microbatch says how a --shape is cut, but MODULE:FACTORY is run: leave it out",
        ),
        (("--shape", "gpt-300m"), "--shape needs --microbatch, the samples of one pass: give it, as in --microbatch 8"),
        ((*SHAPE, "--technique", "swop"), "there is no technique 'swop': did you mean 'swap'?"),
        ((*SHAPE, "--solver", "opt"), "there is no solver of swap problems 'opt': choose of"),
        ((*SHAPE, "--outside", "much"), "--outside is 'much': give bytes"),
        ((*SHAPE, "--outside", "10TiB"), "--outside is 10995116277760 bytes (10.00 TiB), but the whole device has"),
        ((PROGRAM, "--attention", "flash"), "--attention says how a --shape is cut, but MODULE:FACTORY is run"),
        ((*SHAPE, "--attention", "fused"), "'fused' is not one of 'unfused', 'flash'"),
        ((*SHAPE, "--budget", "80"), "--budget is '80', a number without a unit"),
        ((*SHAPE, "--budget", "0%"), "the budget is 0 bytes, in which nothing runs"),
        ((*SHAPE, "--time-limit", "-1"), "--time-limit is -1.0: give at least 0 seconds"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments: tuple[object, ...], sentence: str) -> None:
    assert sentence in refused(fit(*arguments))


@pytest.mark.usefixtures("plain_sim")
def test_a_program_that_is_not_there() -> None:
    assert "there is no module" in refused(fit("nowhere:build"))


def test_both_techniques_together_on_a_shape() -> None:
    """Never slower than a step without memory to spare; in segments too, where they fit in what the row names."""
    words = ("--shape", "gpt-300m", "--microbatch", 1, "--pipeline", 8, "--technique", "joint", "--technique", "plain")
    small = told(*words, "--budget", "1%", hardware="a100-sxm-80")
    least = rows(small)["joint"]["least_allocated_bytes"]
    assert (rows(small)["joint"]["fits_allocated"], small["fits"]) == (False, False)
    near = rows(told(*words, "--budget", str(least), hardware="a100-sxm-80"))["joint"]
    assert near["fits_allocated"] is True and near["fits"] is (near["least_reserved_bytes"] <= least)
    assert near["margin_reserved_bytes"] == least - near["least_reserved_bytes"]
    answer = told(*words, "--budget", str(near["least_reserved_bytes"]), hardware="a100-sxm-80")
    plain, joint = rows(answer)["plain"], rows(answer)["joint"]
    assert plain["fits"] is False and (joint["fits"], answer["fits"]) == (True, True)
    assert joint["allocated_bytes"] <= joint["reserved_bytes"] <= answer["budget_bytes"]
    assert joint["step_us"] >= plain["step_us"] and joint["host_bytes"] > 0 and joint["solver"] == "greedy-joint"
    assert sum(size * count for size, count in near["segments"]) == near["reserved_bytes"] >= least
