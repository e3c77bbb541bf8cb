"""`python -m tests.runtime.execute.planned [runs]`: judges so many planned runs and prints the counts as Markdown.

What is no longer kept shows at once on the error stream.
"""

import gc
import sys

import torch

from tests.accelerators import prepare_sim


def main(count: int) -> None:
    """Judge and print."""
    torch.set_num_threads(1)
    prepare_sim()
    from tests.runtime.execute.planned.counting import page, told
    from tests.runtime.execute.planned.drawing import drawn
    from tests.runtime.execute.planned.judging import judge

    gc.freeze()  # what the imports made stays anyway, and would make each collection slow
    verdicts = []
    for run in drawn(count):
        verdicts.append(judge(run))
        print(len(verdicts), told(verdicts[-1]), file=sys.stderr, flush=True)
    print(page(verdicts))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 55)
