"""Rows of an experiment as JSON lines (`bayplan-row/1`), in full or compact, and where they come from.

Compact (`bayplan-rows/1`): the first line says how many rows follow, and under `shared` what all of them have alike;
each row is without that, and its figures have nine significant digits. Read, they are rows like any others.
"""

import json
import subprocess
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from solvers.ir import InvalidInput, Row
from solvers.ir.codec import document_from_raw, document_to_raw, parse_json, read_text

COMPACT = "bayplan-rows/1"
DIGITS = 9
"""Significant digits of compact figures: as many as tell any two numbers of single precision apart."""


def rows_to_text(rows: Iterable[Row]) -> str:
    """One JSON object a line, in order."""
    return _text(document_to_raw(row) for row in rows)


def rows_from_text(text: str, place: str = "the rows") -> list[Row]:
    """The rows that `rows_to_text` wrote; raises `InvalidInput` naming the line."""
    # Only line feeds end a row: U+2028 and U+0085, at which `splitlines` cuts too, stand in JSON strings as they are.
    lines = [(f"{place} line {number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    raws = [(at, parse_json(line, at)) for at, line in lines]
    if raws and isinstance(raws[0][1], dict) and raws[0][1].get("format") == COMPACT:
        raws = _expanded(raws[0][1], raws[1:], place)
    return [document_from_raw(raw, Row, at) for at, raw in raws]


def rows_to_compact(rows: Sequence[Row], exact: Collection[str] = ()) -> str:
    """The rows as `bayplan-rows/1`; the figures named in `exact` keep all their digits."""
    raws = [document_to_raw(row) for row in rows]
    shared = _shared(raws)
    asked = _shared([raw["asked"] for raw in raws])
    lines: list[Any] = [{"format": COMPACT, "rows": len(raws), "shared": {**shared, "asked": asked}}]
    for raw in raws:
        own = {name: value for name, value in raw.items() if name not in shared}
        own["asked"] = {name: value for name, value in raw["asked"].items() if name not in asked}
        figures = own["figures"].items()
        own["figures"] = {name: value if name in exact else _rounded(value) for name, value in figures}
        lines.append(own)
    return _text(lines)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; raises `InvalidInput` where it cannot be read."""
    return rows_from_text(read_text(path), str(path))


def _text(lines: Iterable[Any]) -> str:
    """Each as JSON in a line, without spaces."""
    return "".join(
        json.dumps(line, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")) + "\n"
        for line in lines
    )


def _shared(raws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all have alike, figures apart."""
    first = raws[0] if raws else {}
    return {
        name: value
        for name, value in first.items()
        if name not in ("asked", "figures") and all(name in raw and _same(raw[name], value) for raw in raws)
    }


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _rounded(value: Any) -> Any:
    """The value with its floats cut to `DIGITS`."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def _expanded(head: dict[str, Any], raws: list[tuple[str, Any]], place: str) -> list[tuple[str, Any]]:
    """Each row with what all have alike; raises `InvalidInput` where the file was cut or its head means nothing."""
    shared, count = head.get("shared"), head.get("rows")
    if not isinstance(shared, dict) or not isinstance(shared.get("asked"), dict):
        raise InvalidInput(f"{place} begins with no `shared` of {COMPACT}: write the file again")
    if count != len(raws):
        raise InvalidInput(f"{place} holds {len(raws)} rows of {count}: write the file again")
    return [(at, _merged(shared, raw)) for at, raw in raws]


def _merged(shared: dict[str, Any], raw: Any) -> Any:
    """A row as it was; what is no object, or asks nothing, is left for its own refusal."""
    if not isinstance(raw, dict) or not isinstance(raw.get("asked"), dict):
        return raw
    return {**shared, **raw, "asked": {**shared["asked"], **raw["asked"]}}


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
