"""The README's python example runs as it stands."""

from tests.readmes import blocks


def test_the_example_runs() -> None:
    (block,) = blocks("solvers/timeline", "python")
    exec(compile(block, "README.md", "exec"), {})
