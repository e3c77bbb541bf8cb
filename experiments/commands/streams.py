"""`-` in place of a file: stdin where something is read, stdout where it is written; answers as one JSON object."""

import json
import sys
from pathlib import Path
from typing import Any

from experiments.commands.outputs import writable
from solvers.ir.codec import (
    MOST_BYTES,
    PlanFile,
    canonical_sha256,
    document_from_raw,
    json_text,
    parse_json,
    plan_from_raw,
    problem_from_raw,
    read_text,
    write_json,
)
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.problem import Problem
from solvers.ir.sentences import one_line

STREAM = Path("-")
"""Stdin where something is read, stdout where something is written."""


def is_stream(path: Path | None) -> bool:
    """Whether a path is `-`."""
    return path == STREAM


def require_one_stdin(*paths: Path | None) -> None:
    """Refuse a command line that reads two things from stdin."""
    if sum(map(is_stream, paths)) > 1:
        raise InvalidInput("two inputs are -, but stdin holds one file only: give the other one by its path")


def require_one_stdout(out: Path | None, as_json: bool, flag: str = "--out") -> None:
    """Refuse a command line that wants two things on stdout."""
    if is_stream(out) and as_json:
        raise InvalidInput(f"--json and {flag} - both write to stdout: leave one of them out")


def read_problem_at(path: Path) -> tuple[Problem, str]:
    """A problem and its sha256, from a file or from stdin; raises `InvalidInput` naming the place."""
    raw = raw_at(path)
    return problem_from_raw(raw, place_of(path)), canonical_sha256(raw)


def read_plan_at(path: Path) -> PlanFile:
    """A plan file, or what stdin holds of one; raises `InvalidInput` naming the place."""
    return plan_from_raw(raw_at(path), place_of(path))


def read_graph_at(path: Path) -> OpGraph:
    """A graph, from a file or from stdin; raises `InvalidInput` naming the place."""
    return document_from_raw(raw_at(path), OpGraph, place_of(path))


def raw_at(path: Path) -> Any:
    """The JSON in a file or on stdin as plain values."""
    return parse_json(_stdin() if is_stream(path) else read_text(path), place_of(path))


def place_of(path: Path) -> str:
    """How messages call it."""
    return "stdin" if is_stream(path) else str(path)


def destination(out: Path, flag: str, inputs: tuple[Path, ...] = ()) -> Path:
    """Where to write: stdout for `-`, else the place itself, judged as by `writable`."""
    return out if is_stream(out) else writable(out, flag, tuple(path for path in inputs if not is_stream(path)))


def write_at(place: Path, raw: Any) -> None:
    """Write JSON to a file, or alone on stdout for `-`."""
    if is_stream(place):
        print(json_text(raw))
    else:
        write_json(place, raw)


def print_json(raw: dict[str, Any]) -> None:
    """An answer as one JSON object on stdout."""
    print(json.dumps(raw, ensure_ascii=False, allow_nan=False))


def _stdin() -> str:
    try:
        text = sys.stdin.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise InvalidInput(f"stdin holds more than {MOST_BYTES} characters: give a smaller file on it")
        return text
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"cannot read stdin ({one_line(error)}): give a UTF-8 JSON file on it") from error
