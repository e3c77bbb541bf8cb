"""The cells of one table, each stored as soon as it is computed, so that nothing is lost and nothing is done twice."""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from experiments.hardware import read_hardware
from experiments.progress import Stages
from experiments.rows import commit
from solvers.ir.codec import canonical_sha256, parse_json, read_text, write_json
from solvers.ir.errors import BayplanError, InvalidInput
from solvers.ir.hardware import Hardware
from solvers.ir.names import unknown
from solvers.ir.sentences import one_line

if TYPE_CHECKING:
    from solvers.workload import ModelShape


@dataclass(frozen=True)
class Cell:
    """One cell: what was asked, what came out or the sentence of its failure, when it was computed, and of what."""

    key: Mapping[str, Any]
    value: Any = None
    failure: str | None = None
    seconds: float = 0.0
    commit: str | None = None
    stored: bool = False
    kept: bool = False
    content: str | None = None


@dataclass
class Cells:
    """What a compute function is given: a store of its cells, the declared inputs, and the seed.

    `folder` belongs to one state of code, parameters and inputs. `done` lists the cells of this run in their order.
    `kept` are cells that an earlier state computed, by `cell_hash`: they stand in for what is not stored.
    `interrupted` says whether Ctrl-C was pressed, even where a solver took it for a wish to end early.
    """

    folder: Path
    name: str = ""
    seed: int = 0
    hardware_names: tuple[str, ...] = ()
    model_names: tuple[str, ...] = ()
    stages: Stages | None = None
    interrupted: Callable[[], bool] = lambda: False
    done: list[Cell] = field(default_factory=list)
    kept: Mapping[str, Cell] = field(default_factory=dict)

    def get(self, key: Mapping[str, Any], compute: Callable[..., Any], *arguments: Any) -> Any:
        """The stored value for this key, or `compute(*arguments)`; None where computing it fails, which is noted.

        The value must be JSON: None, numbers, strings, lists, dicts (msgspec records become dicts).
        """
        cell = self._stored(key) or self.kept.get(cell_hash(key))
        if cell is None:
            if self.stages is not None:
                self.stages.say(f"{self.name}: {' '.join(map(str, key.values()))}")
            cell = self._computed(key, lambda: compute(*arguments))
        if self.stages is not None:
            self.stages.advance()
        self.done.append(cell)
        return cell.value

    def total(self, count: int) -> None:
        """Say how many cells there will be, for the progress bar."""
        if self.stages is not None:
            self.stages.expect(count)

    def hardware(self, name: str) -> Hardware:
        """The hardware file of that name, which the entry must declare."""
        return read_hardware(_declared(name, self.hardware_names, "hardware"))

    def shape(self, name: str) -> "ModelShape":
        """The model shape of that name, which the entry must declare."""
        from experiments.shapes import read_shape

        return read_shape(_declared(name, self.model_names, "models"))

    def forget(self) -> None:
        """Drop everything stored."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def peek(self, key: Mapping[str, Any]) -> Any:
        """The stored value for this key; None where there is none."""
        cell = self._stored(key)
        return None if cell is None else cell.value

    def recall(self, keys: Iterable[Mapping[str, Any]]) -> list[Cell]:
        """The stored cells of these keys."""
        return [cell for cell in map(self._stored, keys) if cell is not None]

    def store(self, key: Mapping[str, Any], value: Any, seconds: float = 0.0) -> Cell:
        """Write a value for this key, whole or not at all."""
        cell = Cell(key, value, None, seconds, commit())
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"cannot make the folder {self.folder} ({error.strerror}): make room for it") from error
        write_json(self._place(key), {"key": key, "value": value, "seconds": seconds, "commit": cell.commit})
        return cell

    def _place(self, key: Mapping[str, Any]) -> Path:
        return self.folder / f"{cell_hash(key)}.json"

    def _stored(self, key: Mapping[str, Any]) -> Cell | None:
        place = self._place(key)
        if not place.exists():
            return None
        try:
            raw = parse_json(read_text(place), str(place))
            return Cell(key, raw["value"], None, raw["seconds"], raw["commit"], stored=True)
        except (InvalidInput, KeyError, TypeError):
            return None  # a spoilt file is no answer: compute it again

    def _computed(self, key: Mapping[str, Any], compute: Callable[[], Any]) -> Cell:
        began = time.perf_counter()
        try:
            value = _plain(compute())
        except Exception as error:
            return Cell(key, failure=failure_sentence(error), seconds=time.perf_counter() - began, commit=commit())
        if self.interrupted():  # an engine that was stopped gives its best so far, which is not the cell's value
            raise KeyboardInterrupt
        return self.store(key, value, time.perf_counter() - began)


def cell_hash(key: Mapping[str, Any]) -> str:
    """What a cell is found by."""
    return canonical_sha256(dict(key))[:24]


def _plain(value: Any) -> Any:
    """The value as it will be read back; raises where it is no JSON."""
    return json.loads(json.dumps(msgspec.to_builtins(value, str_keys=True), allow_nan=False))


def failure_sentence(error: Exception) -> str:
    """One sentence: Bayplan's own errors speak for themselves, others name their type."""
    return one_line(error) if isinstance(error, BayplanError) else f"{type(error).__name__}: {one_line(error)}"


def _declared(name: str, names: Iterable[str], where: str) -> str:
    if name not in names:
        wanted = unknown(f"name in the entry's `{where}`", name, names)
        raise InvalidInput(f"{wanted}; declare it there, so that a changed file is noticed")
    return name
