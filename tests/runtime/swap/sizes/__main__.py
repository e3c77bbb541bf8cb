"""`python -m tests.runtime.swap.sizes [PROGRAM …] [long]` prints a table of loops whose sizes vary; minutes.

With `long` launching a kernel takes no time, as where all of them are long.
"""

import sys

from tests.runtime.swap.sizes.programs import PROGRAMS
from tests.runtime.swap.sizes.trials import HEAD, line, trials

if __name__ == "__main__":
    words = sys.argv[1:]
    print(HEAD, flush=True)
    for row in trials([word for word in words if word != "long"] or PROGRAMS, "long" not in words):
        print(line(row), flush=True)
