"""How the figures of a run were obtained, by what its rows say of themselves, and of what kind the run was."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.kinds import EXPERIMENTS, KINDS, TRAINING, kind_of
from solvers.ir import Row

WORDS = {
    "sim-executed": "sim-executed", "sim-shapes": "by shapes", "simulated": "simulated",
    "executed": "executed",
}  # fmt: skip
"""How a row's provenance begins, and what README's Results call it."""
UNKNOWN = "not known"
SEE = f"{UNKNOWN}: see the provenance of each row"


def how_of_rows(rows: Sequence[Row]) -> str:
    """How the rows' figures were obtained, as each says itself; `UNKNOWN` where any does not say it."""
    words = list(dict.fromkeys(_how(row) for row in rows))
    return UNKNOWN if not words or UNKNOWN in words else " and ".join(words)


def _how(row: Row) -> str:
    said = re.match(r"[a-z-]+", row.provenance)
    return WORDS.get(said[0], UNKNOWN) if said else UNKNOWN


def kind_of_folder(settings: str, readable: bool, record: Mapping[str, Any] | None, rows: Sequence[Row]) -> str:
    """The kind that the sweep or the settings name, else that of the rows' experiments; `UNKNOWN` where none does.

    Settings that can be read and name none are a training's: every other kind writes its own down.
    """
    said = re.search(r"^kind: *(\w+) *$", settings, re.MULTILINE)
    for kind in (None if record is None else record.get("kind"), None if said is None else said[1]):
        if isinstance(kind, str) and kind in KINDS:
            return kind
    names = {row.experiment for row in rows}
    known = {name for name in names if re.fullmatch(r"[\w-]{1,100}", name) and (EXPERIMENTS / f"{name}.yaml").is_file()}
    kinds = {kind_of([f"experiment={name}"]) for name in known}
    if len(kinds) == 1 and known == names:
        return kinds.pop()
    return TRAINING if readable else UNKNOWN
