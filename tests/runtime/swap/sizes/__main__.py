"""`python -m tests.runtime.swap.sizes [PROGRAM …]` prints a table of loops whose sizes vary, line by line; minutes."""

import sys

from tests.runtime.swap.sizes.trials import HEAD, PROGRAMS, line, trials

if __name__ == "__main__":
    print(HEAD, flush=True)
    for row in trials(sys.argv[1:] or PROGRAMS):
        print(line(row), flush=True)
