"""`python -m tests.runtime.swap.segments [PROGRAM …] [sessions|plans]` prints a table of trials, line by line; minutes.

Instead of a program: `small` (the default), `bytes` and `shapes` stand for all of a kind, `larger` for the last two,
`others` for those that nobody looked at before.
"""

import sys

from tests.runtime.swap.segments.larger import SHAPES_ONLY, WITH_BYTES
from tests.runtime.swap.segments.others import OTHERS_BY_SHAPES, OTHERS_WITH_BYTES
from tests.runtime.swap.segments.programs import PROGRAMS
from tests.runtime.swap.segments.trials import HEAD, Technique, Trial, line, trials

GROUPS: dict[str, list[str]] = {
    "small": list(PROGRAMS),
    "bytes": list(WITH_BYTES),
    "shapes": list(SHAPES_ONLY),
    "larger": [*WITH_BYTES, *SHAPES_ONLY],
    "others": [*OTHERS_WITH_BYTES, *OTHERS_BY_SHAPES],
}
TECHNIQUES: dict[str, list[Technique]] = {"sessions": ["session"], "plans": ["plan"]}


def main(words: list[str]) -> None:
    """Print the trials that the words name."""
    techniques = [name for word in words for name in TECHNIQUES.get(word, [])] or ["session", "plan"]
    programs = [name for word in words if word not in TECHNIQUES for name in GROUPS.get(word, [word])]
    print(HEAD, flush=True)
    rows: list[Trial] = []
    for row in trials(programs or PROGRAMS, techniques):
        rows.append(row)
        print(line(row), flush=True)
    infeasible = sum(row.infeasible for row in rows)
    refused = sum(bool(row.refused) for row in rows) - infeasible
    calm = sum(row.calm for row in rows)
    print(
        f"\nkept: {sum(row.kept for row in rows)} of {len(rows)} ({calm} without a retry after warm-up); "
        f"infeasible: {infeasible}; refused though feasible as far as is known: {refused}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
