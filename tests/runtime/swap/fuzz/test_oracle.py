"""The judge itself: it sees a single bit, a missing iteration and another exception, and it finds small programs."""

from dataclasses import replace

import torch

from tests.runtime.swap.fuzz.program import Program, Turn, draw_program
from tests.runtime.swap.fuzz.shrinking import shrunk
from tests.runtime.swap.fuzz.training import Loop, Named, Trace, Untreated, same_bits
from tests.runtime.swap.fuzz.variants import Variant, draw_variant

CPU = torch.device("cpu")
SMALL = Program(seed=3, parts=("linear", "gelu", "linear"), turns=(Turn(4, 16),) * 4)


class OneBit(Untreated):
    """Changes the last bit of one activation, once."""

    def __init__(self, at: int) -> None:
        self._left = at

    def tick(self, hidden: torch.Tensor) -> None:
        """Count down to it."""
        self._left -= 1
        if self._left == 0:
            hidden.data.view(torch.int32)[0, 0, 0] ^= 1


def test_a_single_bit_is_seen_where_it_first_shows() -> None:
    plain = Loop(SMALL, CPU).run()
    assert Loop(SMALL, CPU).run().difference(plain) is None
    difference = Loop(SMALL, CPU, OneBit(at=4)).run().difference(plain)  # three parts an iteration: the second one's
    assert difference is not None and difference.startswith("iteration 1: ")


def test_lengths_names_and_exceptions_are_compared() -> None:
    one: Named = {"loss 0": torch.ones(1)}
    two: Named = {"loss 1": torch.ones(1)}
    assert Trace([one], [""]).difference(Trace([one, one], ["", ""])) == "1 iterations ran, of 2"
    assert "on one side only" in (Trace([one], [""]).difference(Trace([two], [""])) or "")
    assert "raised 'x'" in (Trace([one], ["x"]).difference(Trace([one], [""])) or "")


def test_bits_not_values_are_compared() -> None:
    assert same_bits(torch.tensor(float("nan")), torch.tensor(float("nan")))
    assert not same_bits(torch.tensor(0.0), torch.tensor(-0.0))
    assert not same_bits(torch.ones(2), torch.ones(2, dtype=torch.float64))
    assert same_bits(None, None) and not same_bits(None, torch.ones(1))


def test_a_failing_program_shrinks_to_what_makes_it_fail() -> None:
    program = replace(draw_program(5), parts=("gelu", "conv", "linear", "residual", "norm"))
    program = replace(program, turns=(*program.turns, Turn(8, 32, ("log", "validation"))))

    def fails(program: Program, variant: Variant) -> bool:
        return "conv" in program.parts and any("validation" in turn.changes for turn in program.turns)

    smallest, variant = shrunk(program, draw_variant(5), fails)
    assert smallest.parts == ("conv",)
    assert [turn.changes for turn in smallest.turns] == [("validation",)]
    assert not (smallest.tied or smallest.clipped or smallest.hooked or smallest.prefetch)
    assert variant == Variant(share=variant.share)


def test_variants_are_drawn_on_both_sides_of_what_a_program_needs() -> None:
    variants = [draw_variant(seed) for seed in range(100)]
    assert 5 <= sum(variant.share < 0 for variant in variants) <= 25
    assert {variant.matching for variant in variants} == {"features", "index"}
    assert {variant.record_stream for variant in variants} == {"custom", "printed", "torch"}
    assert {variant.boundaries for variant in variants} == {"optimizer", "given"}
