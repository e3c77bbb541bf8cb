"""The python program of runtime/ranks/README.md prints what it says."""

import sys

from tests.readmes import ROOT, blocks, run


def test_the_program_runs_as_printed() -> None:
    (program,) = blocks("runtime/ranks", "python")
    total, makespan = run([sys.executable, "-c", program], ROOT).splitlines()
    assert total == "[6.0, 6.0, 6.0, 6.0]"
    assert int(makespan) > 0
