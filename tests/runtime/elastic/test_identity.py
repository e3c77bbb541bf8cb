"""What tells processes apart that would compute something else, and what does not."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.elastic import ElasticJob
from runtime.elastic.identity import code_of, described, difference, identity_of, version_of
from tests.runtime.elastic.jobs import LAYERS, Small, batches, small

JOB = "tests.runtime.elastic.jobs:small"
CPU = torch.device("cpu")


class Wider(Small):
    """A layer whose parts have other settings, and no other names or shapes."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.dropout = nn.Dropout(0.3)


class Narrow(Wider):
    """The same, but of another rate."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.dropout.p = 0.1


def layers(kind: Callable[[int], nn.Module]) -> list[Callable[[], nn.Module]]:
    return [partial(kind, number) for number in range(LAYERS)]


def later(step: int, microbatch: int) -> tuple[Tensor, Tensor]:
    return batches(step + 1, microbatch)


def of(job: ElasticJob, canonical: bool = True) -> dict[str, str]:
    return identity_of(JOB, job, canonical)


def adam(rate: float = 1e-2, **more: Any) -> Callable[..., torch.optim.Optimizer]:
    return partial(torch.optim.AdamW, lr=rate, **more)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seed": 4}, "the seed (4, not 3) and in 6 more"),
        ({"microbatches": 9}, "the microbatches of a step (9, not 8)"),
        ({"layers": layers(Small)[:-1]}, "the number of layers (5, not 6) and in "),
        ({"optimizer": adam(2e-2)}, "the optimizer's lr of layer 0 (0.02, not 0.01) and in 5 more"),
        ({"optimizer": adam(betas=(0.8, 0.9))}, "the optimizer's betas of layer 0 ((0.8, 0.9), not (0.9, 0.999))"),
        ({"optimizer": partial(torch.optim.SGD, lr=1e-2)}, "the optimizer of layer 0 (SGD, not AdamW) and in "),
        ({"batches": later}, "the batches (tests.runtime.elastic.test_identity.later, not tests.runtime.elastic.jobs."),
        ({"loss": partial(functional.cross_entropy, label_smoothing=0.1)}, "the loss"),
        ({"layers": layers(Wider)}, "the modules of layer 0 and in 5 more"),
    ],
)
def test_what_changes_what_is_computed_is_told(changed: dict[str, Any], told: str) -> None:
    expected = of(small(CPU))
    assert difference(of(replace(small(CPU), **changed)), expected).startswith(told)


def test_the_same_job_has_one_identity_and_leaves_the_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    assert of(small(CPU)) == of(small(CPU))
    assert torch.equal(torch.get_rng_state(), before)
    assert difference(of(small(CPU)), of(small(CPU))) == ""


def test_sums_rates_of_dropout_and_types_of_numbers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    job = small(CPU)
    assert difference(of(job, False), of(job)) == "the sums of gradients (in floating point, not in fixed point)"
    wider, narrow = (of(replace(job, layers=layers(kind))) for kind in (Wider, Narrow))
    assert difference(wider, narrow) == "the modules of layer 0 and in 5 more"
    single = of(job)
    try:
        torch.set_default_dtype(torch.float64)
        told = difference(of(job), single)
    finally:
        torch.set_default_dtype(torch.float32)
    assert told == "the default type of numbers (torch.float64, not torch.float32) and in 12 more"


def test_data_behind_the_same_function_is_told() -> None:
    """A closure's data has no words, but its first microbatch has bits."""

    def over(tokens: Tensor) -> ElasticJob:
        return replace(small(CPU), batches=lambda step, microbatch: (tokens, tokens))

    one, other = (of(over(torch.arange(4) + first)) for first in (1, 2))
    assert difference(one, other) == "the first microbatch"


def test_code_is_that_in_memory_whatever_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "edited_job.py"
    text = "class A:\n    other = None\n    def f(self, x):\n        return x in {'a', 'b', 1.5}\n\nA.other = A\n"

    def imported(source: str) -> str:
        file.write_text(source)
        monkeypatch.delitem(sys.modules, "edited_job", raising=False)
        return code_of(import_module("edited_job"))

    first = imported(text)
    assert first.startswith("#")
    assert imported(f"# a line of its own\n{text}") == first
    module = sys.modules["edited_job"]
    file.write_text(text.replace("1.5", "2.5"))
    assert code_of(module) == first
    assert imported(text.replace("1.5", "2.5")) != first
    assert imported(text.replace("    def f", "    @property\n    def f")) == first  # the same instructions
    assert version_of("edited_job:A") != version_of("edited_job:B")


def test_code_that_others_have_rewritten_is_not_compared() -> None:
    assert code_of(sys.modules[__name__]) == code_of(None) == ""  # pytest rewrites the asserts of this file
    one = of(small(CPU))
    lacking = {part: value for part, value in one.items() if part != "the code of tests.runtime.elastic.jobs"}
    assert difference(lacking, one) == difference(one, lacking) == ""
    assert difference({}, {"the seed": "1"}) == "the seed (nothing, not 1)"
    assert difference({}, {"the seed": "1", "torch's version": "2"}) == "the seed (nothing, not 1) and in 1 more"


@dataclass(frozen=True)
class Shape:
    """Data and no more."""

    width: int
    place: str = "/a/b"


def test_words_are_the_same_in_each_process() -> None:
    def recursive() -> object:
        return recursive

    assert described(partial(functional.cross_entropy, label_smoothing=0.5)).endswith(
        "cross_entropy(None, None, -100, None, 'mean', 0.0)((label_smoothing=0.5))"
    )
    assert described(Shape(3)) == f"{__name__}.Shape(width=3, place=a path)"
    assert described(object()) == "builtins.object"
    assert "0x" not in described(recursive)
    assert described([1, "a", None, torch.float16]) == "(1, 'a', None, torch.float16)"
