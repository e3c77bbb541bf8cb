"""Extensions are there, or None: an install without a compiler goes on with Python."""

from solvers.native import extension


def test_a_module_that_was_not_built_is_none() -> None:
    assert extension("solvers.joint._never_built") is None
    assert extension("json") is not None
