"""One entry from its file to its rows: cached where nothing that matters has changed."""

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from experiments.machine import machine
from experiments.progress import Stages
from experiments.reproduction.cells import Cell, Cells, failure_sentence
from experiments.reproduction.entry import SHIPPED, Entry
from experiments.reproduction.judge import FAILED, Judged, judge
from experiments.reproduction.kept import Kept, KeptCells, kept_cells
from experiments.reproduction.result import Result
from experiments.reproduction.sources import ROOT, code_digest, files_digest
from experiments.rows import commit
from solvers.ir import InvalidInput, Row
from solvers.ir.names import unknown

CACHE = Path("runs") / "table"
KEPT = ROOT / "experiments" / "results" / "tables"
RESULT = {"result": "whole"}
"""The key under which a whole result is stored."""


@dataclass(frozen=True)
class Options:
    """How tables are made: from which entries, with which seed, and whether the cache counts.

    `kept`: the folder of kept results, from which long entries may take their cells.
    """

    folder: Path = SHIPPED
    cache: Path = CACHE
    kept: Path | None = None
    seed: int = 0
    fresh: bool = False
    interrupted: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Outcome:
    """One entry with its verdicts; `cells` are those behind the result, in their order.

    `content` is the hash of what decides its values, where they were computed, if that is one for all cells; `kept`
    tells of kept cells among them.
    """

    name: str
    entry: Entry
    rows: tuple[Judged, ...]
    result: Result | None = None
    failure: str | None = None
    cells: tuple[Cell, ...] = ()
    seed: int = 0
    commit: str | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    content: str | None = None
    kept: Kept | None = None

    @property
    def how(self) -> str:
        """How ours was obtained, and whether from kept cells or other kept results."""
        return self.entry.how if self.kept is None and not self.entry.reread else f"{self.entry.how}, kept"

    @property
    def command(self) -> str:
        """What to type to get the same."""
        return f"bayplan table {self.name}" + (f" --seed {self.seed}" if self.seed else "")

    def to_rows(self) -> list[Row]:
        """As `bayplan-row/1`: one row for each quantity and check, then one for each cell."""
        return [_row(self, one) for one in self.rows] + [_cell_row(self, cell) for cell in self.cells]


def run_entry(name: str, entry: Entry, options: Options, stages: Stages | None = None) -> Outcome:
    """Compute what is not stored yet, and judge; what goes wrong becomes a sentence in the rows.

    Ctrl-C passes through: every finished cell is stored by then.
    """
    if entry.compute is None:
        return Outcome(name, entry, tuple(judge(entry, None)), seed=options.seed, commit=commit(), machine=machine())
    try:
        content = cache_key(entry, options.seed)
        known = _known(name, entry, options)
        cells = _cells(name, entry, options, stages, content, known)
        result, made = _result(entry, cells)
    except InvalidInput as error:
        return _failed(name, entry, options, str(error))
    except Exception as error:
        return _failed(name, entry, options, failure_sentence(error))
    kept = known.used(cells.done, content)
    return Outcome(
        name=name,
        entry=entry,
        rows=tuple(judge(entry, result)),
        result=result,
        cells=tuple(cell if cell.kept else replace(cell, content=content) for cell in cells.done),
        seed=options.seed,
        commit=made.get("commit"),
        machine=made.get("machine", {}),
        content=_content(cells.done, content),
        kept=kept,
    )


def _content(done: list[Cell], content: str) -> str | None:
    """The content that all cells are of; None where they are of several."""
    found = {cell.content if cell.kept else content for cell in done} or {content}
    return found.pop() if len(found) == 1 else None


def cache_key(entry: Entry, seed: int) -> str:
    """The hash of what decides an entry's values: function, parameters, seed, files that it reads, code behind it.

    Not in it: the paper's values, tolerances, checks and texts, which are judged anew each time. Raises `InvalidInput`
    where a module or file does not exist.
    """
    module, _ = entry.function()
    patterns = [
        *(f"conf/hardware/{name}.json" for name in entry.hardware),
        *(f"conf/model/shapes/{name}.json" for name in entry.models),
        *entry.reads,
    ]
    readers = ["experiments.hardware"] if entry.hardware else []
    readers += ["experiments.shapes"] if entry.models else []
    code = [code_digest(one) for one in (module, *readers)]
    return _hash([entry.compute, entry.parameters, seed, files_digest(patterns), *code])


def parameters_hash(entry: Entry) -> str:
    """The hash of the function and the parameters that an entry names, by which kept cells are told apart."""
    return _hash([entry.compute, entry.parameters])


def _hash(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _known(name: str, entry: Entry, options: Options) -> KeptCells:
    """The kept cells of a long entry; none of others, and where nothing kept is wanted."""
    if options.kept is None or options.fresh:
        return KeptCells()
    known = kept_cells(options.kept, entry.system, name, options.seed, parameters_hash(entry))
    return known if known.long else KeptCells()


def _cells(name: str, entry: Entry, options: Options, stages: Stages | None, content: str, known: KeptCells) -> Cells:
    folder = options.cache / name / content
    cells = Cells(
        folder, name, options.seed, entry.hardware, entry.models, stages, options.interrupted, kept=known.cells
    )
    if options.fresh:
        cells.forget()
    return cells


def _result(entry: Entry, cells: Cells) -> tuple[Result, dict[str, Any]]:
    """The stored result, or a computed one, which is stored if its cells were all computed here and none failed."""
    stored = cells.peek(RESULT)
    if stored is not None:
        cells.done += cells.recall(stored["cells"])
        return msgspec.convert(stored["result"], Result), stored
    result = compute_function(entry)(cells, **entry.parameters)
    if not isinstance(result, Result):
        raise InvalidInput(f"{entry.compute} returned {type(result).__name__}: it must return a Result")
    if any(cell.kept for cell in cells.done):
        commits = dict.fromkeys(cell.commit for cell in cells.done if cell.commit is not None)
        return result, {"commit": next(iter(commits), None)}
    made = {"commit": commit(), "machine": machine()}
    if not any(cell.failure for cell in cells.done):
        keys = [dict(cell.key) for cell in cells.done]
        cells.store(RESULT, {"result": msgspec.to_builtins(result), "cells": keys, **made})
    return result, made


def compute_function(entry: Entry) -> Callable[..., Result]:
    """The function that an entry names, its parameters judged; raises `InvalidInput`."""
    module, name = entry.function()
    try:
        function: Callable[..., Result] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise InvalidInput(f"there is no module {error.name}: correct `compute`, or write it") from error
    except AttributeError as error:
        raise InvalidInput(f"{module} has no function {name}: correct `compute`, or write it") from error
    wanted = list(inspect.signature(function).parameters.values())[1:]
    for given in entry.parameters:
        if given not in [one.name for one in wanted]:
            raise unknown(f"parameter of {entry.compute}", given, (one.name for one in wanted))
    for one in wanted:
        if one.default is one.empty and one.name not in entry.parameters:
            raise InvalidInput(f"{entry.compute} needs the parameter {one.name!r}: give it under `parameters`")
    return function


def _failed(name: str, entry: Entry, options: Options, sentence: str) -> Outcome:
    rows = tuple(judge(entry, None, sentence))
    return Outcome(name, entry, rows, None, sentence, (), options.seed, commit(), machine())


def _row(outcome: Outcome, judged: Judged) -> Row:
    raw = msgspec.json.decode(msgspec.json.encode(judged))
    asked = {**_asked(outcome), "quantity": raw.pop("name"), "place": raw.pop("place")}
    return Row(
        experiment=outcome.name,
        asked=asked,
        outcome="error" if judged.verdict == FAILED else "ok",
        figures={name: value for name, value in raw.items() if value is not None and name != "reason"},
        provenance=provenance(outcome),
        commit=outcome.commit,
        seed=outcome.seed,
        reason=judged.reason,
    )


def _cell_row(outcome: Outcome, cell: Cell) -> Row:
    return Row(
        experiment=outcome.name,
        asked={**_cell_asked(outcome, cell), "cell": dict(cell.key)},
        outcome="ok" if cell.failure is None else "error",
        figures={} if cell.failure is not None else {"value": cell.value, "seconds": round(cell.seconds, 6)},
        provenance=provenance(outcome, outcome.how if cell.kept or outcome.entry.reread else outcome.entry.how),
        commit=cell.commit,
        seed=outcome.seed,
        reason=cell.failure,
    )


def _cell_asked(outcome: Outcome, cell: Cell) -> dict[str, Any]:
    """What a cell was asked: by its own content, and marked as kept if it is."""
    asked = {name: value for name, value in _asked(outcome).items() if name != "content"}
    asked |= {} if cell.content is None else {"content": cell.content}
    return asked if cell.kept else {name: value for name, value in asked.items() if name != "kept"}


def _asked(outcome: Outcome) -> dict[str, Any]:
    """What all rows of an entry were asked."""
    asked: dict[str, Any] = {"system": outcome.entry.system}
    asked |= {} if outcome.entry.compute is None else {"parameters": parameters_hash(outcome.entry)}
    asked |= {} if outcome.content is None else {"content": outcome.content}
    return asked if outcome.kept is None else {**asked, "kept": msgspec.to_builtins(outcome.kept)}


def provenance(outcome: Outcome, how: str | None = None) -> str:
    """How the figures were obtained, from which files, and by which command."""
    entry = outcome.entry
    used = [f"hardware {', '.join(entry.hardware)}"] if entry.hardware else []
    used += [f"models {', '.join(entry.models)}"] if entry.models else []
    used += [f"files {', '.join(entry.reads)}"] if entry.reads else []
    return "; ".join([how or outcome.how, *used, outcome.command])
