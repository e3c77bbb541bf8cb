from runtime.profile.phases import settle_phases

LETTERS = {"o": "outside", "b": "backward", "u": "optimizer"}


def phases(ranges: str) -> str:
    """One letter for each operator: f(orward), b(ackward), o(ptimizer)."""
    return "".join(phase[0] for phase in settle_phases([LETTERS[letter] for letter in ranges]))


def test_clipping_between_backward_and_update_is_the_optimizers() -> None:
    assert phases("oobboouu") == "ffbboooo"


def test_what_follows_the_last_backward_is_the_optimizers_even_without_one() -> None:
    assert phases("oobboo") == "ffbboo"


def test_a_second_microbatch_goes_forward_again() -> None:
    assert phases("oobboobbuu") == "ffbbffbboo"


def test_two_optimizers_each_have_their_forward() -> None:
    assert phases("ooboouuoobou") == "ffbooooffboo"


def test_gradients_zeroed_at_the_beginning_are_part_of_the_forward() -> None:
    assert phases("oobu") == "ffbo"
    assert phases("oo") == "ff"
    assert phases("") == ""
