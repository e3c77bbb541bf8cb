"""Whatever a stranger types gives an answer, or one sentence with the value and the remedy: never a fault."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from runtime.device.native import why_missing
from tests.experiments import strangers
from tests.experiments.commands.console import Outcome, call, write_graph
from tests.experiments.strangers import options

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")
HERE = strangers.__name__


class Case(NamedTuple):
    """A command line, and what its sentence must say."""

    words: tuple[str, ...]
    told: str
    code: int = 2


def compare(factory: str, told: str, *more: str, code: int = 2) -> Case:
    return Case(("compare", "model=own", f"model.factory={HERE}:{factory}", *options(), *more), told, code)


def profile(factory: str, told: str, *more: str, code: int = 2) -> Case:
    return Case(("profile", f"{HERE}:{factory}", "--device", "sim", *more), told, code)


def setting(word: str, told: str) -> Case:
    return Case(("compare", "model=gpt-tiny", *options(), word), told)


def make(budget: str, told: str) -> Case:
    words = ("make", "swap", "--graph", "g.json", "--hardware", "sim-small", "--budget", budget, "--out", "p.json")
    return Case(words, told)


COMPILED = "uses torch.compile, whose kernels no profiler of operators sees: return the eager model and step"
BUILT_WRONG = {
    "nothing": "returned a NoneType: it must return (model, optimizer, step)",
    "a_model_only": "returned a Sequential: it must return (model, optimizer, step)",
    "two_parts": "returned a tuple of 2: it must return (model, optimizer, step)",
    "swapped_parts": "returned a AdamW as model, not a torch.nn.Module: it must return (model, optimizer, step)",
    "as_dict": "returned a dict: it must return (model, optimizer, step)",
    "no_step": "returned a NoneType as step, not a function: it must return (model, optimizer, step)",
    "class_of_step": "a step that needs batch, scale: let it take no argument and keep its data itself",
    "two_devices": "is called with a device: let it take `device` only",
    "on_cpu": "was given device sim:0, but its model is on cpu: move it there before the optimizer is made, as in "
    "model.to(device)",
    "on_meta": "was given device sim:0, but its model is on meta: move it there",
    "empty_model": "returned a model without parameters, so there is nothing to train: return the module",
    "optimizer_of_nothing": "optimizer got an empty parameter list",
    "optimizer_of_an_empty_group": "returned an optimizer without parameters: give it model.parameters()",
    "raises": "raised FileNotFoundError at strangers.py:",
    "raises_long": "page after page …): correct it",
    "ends_python": "raised SystemExit at strangers.py:",
    "asks_for_the_impossible": "",
    "too_large": "fit the whole device (sim out of memory: an allocation of",
    "compiled_model": COMPILED,
    "compiled_block": COMPILED,
    "compiled_step": COMPILED,
    "compiled_loss": "uses torch.compile, which failed here (InductorError)",
    "data_on_cpu": "",
    "computing_elsewhere": "takes no memory on sim",
    "does_nothing": "has no ops: profile a step that does some work, in the thread that calls it",
    "in_a_thread": "has no ops: profile a step that does some work, in the thread that calls it",
    "sets_up_the_device": "calls use_sim, but device sim:0 is set up already: leave it out, and use the device given",
    "stumbles": "raised IndexError at strangers.py:",
    "leaves": "raised SystemExit at strangers.py:",
    "frozen": "does not require grad",
    "no_such_factory": "choose of ",
}
"""Factories that no command can use, and a part of the one sentence that each gets from `compare` and `profile`."""
TRAINED_WRONG = {
    "returns_float": "returned a float: it must return the loss, a tensor of one element",
    "returns_none": "returned a NoneType: it must return the loss, a tensor of one element",
    "returns_dict": "returned a dict: it must return the loss, a tensor of one element",
    "returns_complex": "returned a complex number: it must return the loss, a tensor of one element",
    "returns_logits": "returned shape (3,): it must return the loss, a tensor of one element",
    "nan_loss": "the loss of step 1 is nan with unlimited memory",
    "late_infinity": "the loss of step 2 is inf with unlimited memory",
    "never_backward": "belongs to a backward pass, so nothing waits in memory that a plan could move: call loss.back",
    "data_decides": "runs other operators from one step to the next",
}
"""Factories whose step can be measured, but under which no policies can be compared."""
SETTINGS = [
    setting("problem.budget_fraction=55", "is 55.0, outside 0.01…2: it is a share of the peak, so write 0.55 for 55 %"),
    setting("problem.budget_fraction=55%", "write a share of the peak, as in 0.55 for 55 %"),
    setting("problem.budget_fraction=150", "it is a share of the peak, so write 1.5 for 150 %"),
    setting("problem.budget_fraction=0", "problem.budget_fraction is 0.0, outside 0.01…2: choose a value inside"),
    setting("problem.budget_fraction=-0.5", "problem.budget_fraction is -0.5, outside 0.01…2: choose a value inside"),
    setting("problem.budget_fraction=half", "write a share of the peak, as in 0.55 for 55 %"),
    setting("problem.budget_fraction=null", "give exactly one of them, and null for the other"),
    setting("problem.budget_bytes=0.5", "a number without a unit: write 50% for a share"),
    setting("problem.budget_bytes=3GX", "KiB MiB GiB TiB: powers of 1024), as in 8GiB"),
    setting("problem.budget=55%", "did you mean 'budget_bytes'?"),
    setting("budget=55%", "there is no setting 'budget'"),
    setting("steps=0", "steps is 0, outside 1…"),
    setting("model=mine", "there is no model 'mine'"),
    setting("model=own", "model.factory has no value: give model.factory=…"),
    setting("solver=optimal", "there is no solver 'optimal'"),
    setting("device=gpu", "device"),
    setting("hardware=b200", "there is no hardware 'b200'"),
    setting("--fast", "there is no flag '--fast'"),
    compare("good", "has no variant that recomputes: leave 'recompute' out", "baselines=[recompute]"),
    Case(("compare", "model=own", "model.factory=mine.py", *options()), "write MODULE:FACTORY"),
    Case(("compare", "model=own", "model.factory=not_here:build", *options()), "there is no module 'not_here'"),
    Case(("train", "model=own", f"model.factory={HERE}:on_cpu", "steps=2"), "its model is on cpu"),
    Case(("train", "model=gpt-tiny", "solver=[]"), "no solver is chosen, but training needs a plan"),
    Case(("train", "experiment=stability", "budget_fraction=80"), "so write 0.8 for 80 %"),
]
BUDGETS = [
    make("55", "--budget is '55', a number without a unit: write 55% for a share, or bytes with a suffix, as in 8GiB"),
    make("0.55", "--budget is '0.55', a number without a unit: write 55% for a share"),
    make("100", "a number without a unit: write 100% for a share"),
    make("0%", "--budget is '0%', in which nothing runs: give at least 1 byte"),
    make("-3GB", "as in 8GiB, or a percentage, as in 55%"),
    make("55 percent", "as in 8GiB, or a percentage, as in 55%"),
    make("3 gigs", "as in 8GiB, or a percentage, as in 55%"),
    make("3,5GB", "as in 8GiB, or a percentage, as in 55%"),
    make("", "--budget is ''"),
    make("1e9", "as in 8GiB, or a percentage, as in 55%"),
]
REFUSED = {
    **{f"compare {name}": compare(name, told) for name, told in (BUILT_WRONG | TRAINED_WRONG).items()},
    **{f"profile {name}": profile(name, told) for name, told in BUILT_WRONG.items()},
    **{f"{case.words[0]} {case.words[-1]}": case for case in SETTINGS},
    **{f"make {case.words[-3]!r}": case for case in BUDGETS},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    write_graph(tmp_path / "g.json")
    strangers.CALLS.clear()
    yield tmp_path
    torch.set_default_device(None)


def judge(outcome: Outcome, code: int) -> str:
    """What a stranger sees when something is wrong: one sentence, no traceback, and nobody's fault but the input's."""
    assert outcome.code == code, outcome
    lines = outcome.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("bayplan: "), outcome.err
    assert "Traceback" not in outcome.err and "Bayplan's own" not in outcome.err
    assert len(lines[0]) < 700
    assert ": " in lines[0].removeprefix("bayplan: ")  # what is wrong, and the remedy
    return lines[0]


@pytest.mark.parametrize("name", REFUSED)
def test_one_sentence_for_each_mistake(name: str, folder: Path) -> None:
    case = REFUSED[name]
    assert case.told in judge(call(*case.words), case.code)
    assert not (folder / "runs").exists() or not any((folder / "runs").glob("*/*"))  # bad input leaves nothing


ANSWERED = {
    "good": (0, "ok", ""),
    "chatty": (0, "ok", "building my model"),
    "returns_its_graph": (0, "ok", ""),
    "late_move": (0, "ok", ""),
    "shuffled": (0, "ok", ""),
    "default_device": (0, "ok", ""),
    "master_weights": (0, "ok", ""),
    "seeded_by_the_clock": (1, "ok", "losses differ from step 1 on between two runs with unlimited memory too"),
    "stumbles_at_the_fourth_call": (1, "error", "raised KeyError at strangers.py:"),
}
"""Programs that get an answer: its exit code, the policy's outcome, and what is said of it."""


@pytest.mark.parametrize("name", ANSWERED)
def test_what_can_be_answered_is(name: str, folder: Path) -> None:
    code, end, told = ANSWERED[name]
    outcome = greedily(name)
    assert (outcome.code, outcome.err) == (code, "")
    assert first_line(outcome)[1] == end
    assert told in outcome.out
    assert "written to runs/custom" in outcome.out


def test_a_program_whose_sizes_follow_its_data_is_carried_out_or_told(folder: Path) -> None:
    """One step in three works on half the rows, which no profile foresees."""
    outcome = greedily("data_sizes", "steps=6")
    end = first_line(outcome)[1].rstrip(",")
    assert outcome.err == "" and (outcome.code, end) in {(0, "ok"), (1, "out-of-memory"), (1, "refused")}
    assert "greedy-swap: " in outcome.out  # the sentence


def greedily(name: str, *more: str) -> Outcome:
    words = options("solver=[greedy-swap]", "baselines=[]", *more)
    return call("compare", "model=own", f"model.factory={HERE}:{name}", *words)


def first_line(outcome: Outcome) -> list[str]:
    """What the table of what happened says of the plan."""
    return next(line.split() for line in outcome.out.splitlines() if line.split()[:1] == ["greedy-swap"])


WARNED = {
    "never_backward": f"none of the 10 operators of {HERE}:never_backward belongs to a backward pass",
    "data_decides": "runs other operators from one step to the next",
}


@pytest.mark.parametrize("name", WARNED)
def test_a_step_that_no_plan_can_follow_is_measured_with_a_warning(name: str, folder: Path) -> None:
    outcome = call("profile", f"{HERE}:{name}", "--device", "sim", "--out", "own.json")
    assert outcome.code == 0
    (line,) = outcome.err.splitlines()
    assert line.startswith("bayplan: warning: ") and WARNED[name] in line
    made = call("make", "swap", "--graph", "own.json", "--hardware", "sim-small", "--budget", "90%", "--out", "p.json")
    assert made.code == 0 and WARNED[name] in made.err


def test_there_are_many_of_them() -> None:
    assert len(REFUSED) >= 90
