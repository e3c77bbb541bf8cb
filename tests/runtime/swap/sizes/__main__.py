"""`python -m tests.runtime.swap.sizes [PROGRAM …] [long]` prints a table of loops whose sizes vary; minutes.

With `long` launching a kernel takes no time, as where all of them are long. `hf-trainer` is transformers' own Trainer,
where `accelerate` is installed. `floor` prints how few swaps a step can do with, and with `gaps` how few launches, were
any tensor to leave between any two of its uses.
"""

import sys
from importlib.util import find_spec

from tests.runtime.swap.sizes import trainer
from tests.runtime.swap.sizes.floor import least_by_gaps, least_swaps
from tests.runtime.swap.sizes.programs import PROGRAMS
from tests.runtime.swap.sizes.trials import HEAD, line, trials

TRAINER = "hf-trainer"

if __name__ == "__main__":
    words = set(sys.argv[1:])
    chosen = [name for name in (*PROGRAMS, TRAINER) if name in words or not words - {"long", "floor", "gaps"}]
    programs = [name for name in chosen if name != TRAINER]
    if "floor" in words:
        for name in programs:
            swaps, share = least_swaps(name)
            print(f"{name}: at least {swaps:.2f} swaps a step, {1 + share:.4f} x plain", flush=True)
            for reach, (us, share) in least_by_gaps(name).items() if "gaps" in words else ():
                print(f"  gaps to the {reach}: at least {us:.0f} us of launches, {1 + share:.4f} x plain", flush=True)
        sys.exit()
    print(HEAD, flush=True)
    for row in trials(programs, "long" not in words):
        print(line(row), flush=True)
    if TRAINER in chosen and find_spec("accelerate") is not None:
        print(line(trainer.attempt()), flush=True)
