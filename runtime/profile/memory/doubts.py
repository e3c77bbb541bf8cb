"""Why the memory of another step may not be that of the profiled one, as far as one step can tell."""

from collections.abc import Collection

from runtime.device.native import core

SIZED_BY_DATA = frozenset(
    f"aten::{name}"
    for name in (
        *("nonzero", "nonzero_numpy", "argwhere", "where", "masked_select"),
        *("_unique", "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave.Tensor"),
    )
)
"""Operators whose results are as large as the values of what they are given say. `where` with one argument is one,
the others have overloads' names. An index by a boolean mask is recorded as one by numbers, and not told apart."""


def doubts_of(recorder: core.DetailedRecorder, blocks: Collection[str], called: Collection[str]) -> tuple[str, ...]:
    """Sentences: of `blocks`, by name, those that were not `called`, and the step's operators of sizes by data."""
    found = []
    left = [name for name in blocks if name not in called]
    if left:
        one = f"block {left[0]} was" if len(left) == 1 else f"{len(left)} blocks ({_some(left)}) were"
        found.append(
            f"{one} not called in the profiled step, of {len(blocks)}: a step that calls other blocks takes other "
            "memory than is predicted; profile the step that calls most of them"
        )
    names = sorted({record.name for record in recorder.operators()} & SIZED_BY_DATA)
    if names:
        found.append(
            f"the profiled step runs {_some(names)}, whose results are as large as the data's values say: a step on "
            "other data takes other memory than is predicted; profile the data that takes most of it"
        )
    return tuple(found)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
