"""Reading and writing the files of formats.md: strict, atomic, one sentence for every fault."""

import hashlib
import json
import math
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from solvers.ir.errors import InvalidInput
from solvers.ir.fields import NonNegative, NonNegativeFloat, Record
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.problem import Plan, Problem
from solvers.ir.report import Report, Row
from solvers.ir.schedule import Schedule
from solvers.ir.sentences import one_line, quoted, sentence
from solvers.ir.solution import Solution, Status
from solvers.kinds import KINDS, load

Document = OpGraph | Hardware | Schedule | Report | Row
PROBLEM_FORMAT = "bayplan-problem/1"
PLAN_FORMAT = "bayplan-plan/1"
READABLE = 1_000_000
"""Characters of JSON up to which a file is written a value a line."""
MOST_BYTES = 1 << 30
"""Larger files are refused unread: no file of ours comes near."""


class Headed(Protocol):
    """A record whose files begin with `"format"`: those of this room, and those that other rooms have of their own."""

    FORMAT: ClassVar[str]


DocumentT = TypeVar("DocumentT", bound=Headed)


class PlanFile(Record, frozen=True, kw_only=True):
    """A plan file: the solver's answer as JSON; `decision` is None where there is no plan."""

    kind: str
    problem_sha256: str | None
    solver: str
    engine: str | None
    seed: int
    status: Status
    objective_us: int | None
    bound_us: float | None
    base_us: int | None
    least_budget_bytes: NonNegative | None
    solve_time_s: NonNegativeFloat
    reason: str | None
    certificate: dict[str, Any] | None
    decision: dict[str, Any] | None

    def plan(self) -> Plan | None:
        """The decision as its kind's plan; raises `InvalidInput` naming the place."""
        if self.decision is None:
            return None
        plan: Plan = _convert(self.decision, load(KINDS[self.kind].plan), "decision")
        return plan


def parse_json(text: str | bytes, place: str) -> Any:
    """JSON as plain values, refusing NaN, infinities and repeated keys."""
    try:
        raw = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique_keys)
        json.dumps(raw, ensure_ascii=False).encode("utf-8")  # half a surrogate pair has no UTF-8, hence no hash
        return raw
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{place} is not valid JSON ({one_line(error)}): repair or regenerate the file") from error


def canonical_sha256(raw: Any) -> str:
    """sha256 of the canonical JSON: sorted keys, separators `,` and `:`, UTF-8 unescaped."""
    text = json.dumps(raw, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def problem_to_raw(problem: Problem) -> dict[str, Any]:
    """A problem as plain JSON values with its header."""
    return {"format": PROBLEM_FORMAT, "kind": problem.KIND, **msgspec.to_builtins(problem)}


def problem_sha256(problem: Problem) -> str:
    """The hash that binds a plan to this problem."""
    return canonical_sha256(problem_to_raw(problem))


def problem_from_raw(raw: Any, place: str = "the problem") -> Problem:
    """A problem from plain JSON values; raises `InvalidInput` naming the place."""
    body = _body(raw, PROBLEM_FORMAT, place)
    kind = _kind(body, place)
    problem: Problem = _convert(body, load(KINDS[kind].problem), place)
    return problem


def read_problem(path: Path) -> tuple[Problem, str]:
    """A problem file and its sha256."""
    raw = parse_json(read_text(path), str(path))
    return problem_from_raw(raw, str(path)), canonical_sha256(raw)


def plan_file(solution: Solution[Any], kind: str, sha256: str | None) -> PlanFile:
    """A solver's answer as a plan file."""
    return PlanFile(
        kind=kind,
        problem_sha256=sha256,
        solver=solution.solver,
        engine=solution.engine,
        seed=solution.seed,
        status=solution.status,
        objective_us=solution.objective,
        bound_us=solution.bound,
        base_us=None if solution.status is Status.INFEASIBLE else solution.base,
        least_budget_bytes=solution.least_budget_bytes,
        solve_time_s=solution.solve_time_s,
        reason=solution.reason,
        certificate=solution.certificate,
        decision=None if solution.plan is None else msgspec.json.decode(msgspec.json.encode(solution.plan)),
    )


def plan_to_raw(plan: PlanFile) -> dict[str, Any]:
    """A plan file as plain JSON values with its header."""
    return {"format": PLAN_FORMAT, **msgspec.to_builtins(plan)}


def plan_from_raw(raw: Any, place: str = "the plan") -> PlanFile:
    """A plan file from plain JSON values, its decision checked for form; raises `InvalidInput` naming the place."""
    body = _body(raw, PLAN_FORMAT, place)
    _kind(body, place, keep=True)
    plan: PlanFile = _convert(body, PlanFile, place)
    if plan.decision is not None:
        _convert(plan.decision, load(KINDS[plan.kind].plan), f"{place}, decision")
    return plan


def read_plan(path: Path) -> PlanFile:
    """A plan file."""
    return plan_from_raw(parse_json(read_text(path), str(path)), str(path))


def document_to_raw(document: Headed) -> dict[str, Any]:
    """A graph, hardware, schedule, report, row or model shape as plain JSON values with its header."""
    return {"format": document.FORMAT, **msgspec.to_builtins(document)}


def document_from_raw(raw: Any, kind: type[DocumentT], place: str) -> DocumentT:
    """A graph, hardware, schedule, report or row from plain JSON values; raises `InvalidInput` naming the place."""
    document: DocumentT = _convert(_body(raw, kind.FORMAT, place), kind, place)
    return document


def read_document(path: Path, kind: type[DocumentT]) -> DocumentT:
    """A graph, hardware, schedule, report or row file."""
    return document_from_raw(parse_json(read_text(path), str(path)), kind, str(path))


def read_text(path: Path) -> str:
    """A file's text; raises `InvalidInput` where it cannot be read, is no regular file, or is larger than 1 GiB."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            raise InvalidInput(f"cannot read {path}: it is no regular file: give a file, or - and the JSON on stdin")
        if about.st_size > MOST_BYTES:
            raise InvalidInput(f"{path} has {about.st_size} bytes, the limit is {MOST_BYTES}: give a smaller file")
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"cannot read {path} ({one_line(error)}): give a readable UTF-8 JSON file") from error


def json_text(raw: Any) -> str:
    """JSON as files hold it: a value a line, or without any space where that makes more than `READABLE` characters."""
    text = json.dumps(raw, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text if len(text) > READABLE else json.dumps(raw, ensure_ascii=False, allow_nan=False, indent=1)


def write_json(path: Path, raw: Any) -> None:
    """Write a JSON file whole or not at all (a temporary file beside it, then a rename)."""
    write_text(path, json_text(raw) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all; raises `InvalidInput` where the place is not writable."""
    path = Path(path)
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot write {path} ({one_line(error)}): choose a writable place") from error
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _body(raw: Any, expected: str, place: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise InvalidInput(f"{place} holds {type(raw).__name__}, not a JSON object: a {expected} file starts with {{")
    found = raw.get("format")
    if found != expected:
        raise InvalidInput(f"{place} has format {quoted(found)}, but {expected!r} is expected here: give such a file")
    return {key: value for key, value in raw.items() if key != "format"}


def _kind(body: dict[str, Any], place: str, keep: bool = False) -> str:
    kind = body.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput(f"{place} has kind {quoted(kind)}: choose of {', '.join(sorted(KINDS))}")
    if not keep:
        del body["kind"]
    return kind


def _convert(raw: Any, kind: type[Any], place: str) -> Any:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{place}: {sentence(error, raw, kind)}") from error
    except (OverflowError, RecursionError) as error:
        raise InvalidInput(f"{place} cannot be held ({one_line(error)}): shorten the number or the nesting") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise ValueError(f"the key {quoted(twice)} appears twice")
    return found
