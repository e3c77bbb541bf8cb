"""Rows of an experiment as JSON lines (`bayplan-row/1`), and where they come from."""

import json
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from solvers.ir import Row
from solvers.ir.codec import document_from_raw, document_to_raw, parse_json, read_text


def rows_to_text(rows: Iterable[Row]) -> str:
    """One JSON object a line, in order."""
    return "".join(
        json.dumps(document_to_raw(row), ensure_ascii=False, allow_nan=False, sort_keys=True) + "\n" for row in rows
    )


def rows_from_text(text: str, place: str = "the rows") -> list[Row]:
    """The rows that `rows_to_text` wrote; raises `InvalidInput` naming the line."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return [
        document_from_raw(parse_json(line, f"{place} line {number}"), Row, f"{place} line {number}")
        for number, line in lines
    ]


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; raises `InvalidInput` where it cannot be read."""
    return rows_from_text(read_text(path), str(path))


@cache
def commit() -> str | None:
    """The checkout's commit, with `+` where files differ from it; None outside a checkout."""
    here = Path(__file__).parent
    known = _git(here, "rev-parse", "HEAD")
    if known is None:
        return None
    changed = _git(here, "status", "--porcelain", "--untracked-files=no")
    return known[:12] + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
