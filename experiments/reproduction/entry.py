"""Entries of `conf/table`: what a paper says, where, and how ours is obtained."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from omegaconf import OmegaConf
from yaml import YAMLError

from experiments.reproduction.checks import AnyCheck
from experiments.reproduction.result import Pick, Take
from solvers.ir.errors import InvalidInput
from solvers.ir.fields import Record, require, require_unique
from solvers.ir.names import unknown
from solvers.ir.sentences import one_line, sentence

SHIPPED = Path(__file__).resolve().parents[2] / "conf" / "table"
How = Literal["executed", "sim-executed", "simulated", "solved", "arithmetic", "paper only"]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Claim(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What the paper states: a value, a range, or one end of a range ("up to", "less than").

    `derived`: how the number follows from what is printed, where it is not printed itself.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    derived: Text | None = None

    def __post_init__(self) -> None:
        ends = self.low is not None or self.high is not None
        require((self.value is not None) != ends, "a claim has a value, or low, high or both: give one of the two")
        require(
            self.low is None or self.high is None or self.low <= self.high,
            f"a claim's low is {self.low}, above its high {self.high}: exchange them",
        )


class Quantity(Record, frozen=True, kw_only=True):
    """One number or range of the paper beside ours.

    `of`, `where` and `take` pick ours from the result. Without a claim there is `unreadable`: why the paper's value
    is not known. `tolerance` is relative; `because` says why ours differs, once that is understood.
    """

    name: Text
    place: Text
    unit: str
    of: str | None = None
    where: str = "*"
    take: Take = "only"
    paper: Claim | None = None
    unreadable: Text | None = None
    tolerance: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    because: Text | None = None

    def __post_init__(self) -> None:
        require(
            (self.paper is None) != (self.unreadable is None),
            f"{self.name!r} needs the paper's value, or `unreadable` and why there is none: give one of them",
        )

    def pick(self) -> Pick | None:
        """What to take of the result; None where nothing of ours answers it."""
        return None if self.of is None else Pick(series=self.of, where=self.where, take=self.take)


class Fitted(Record, frozen=True, kw_only=True):
    """A constant that was chosen so that ours meets a figure of the paper: what, its value, to what, and where."""

    constant: Text
    value: float | str
    to: Text
    place: Text


class Entry(Record, frozen=True, kw_only=True):
    """One table or figure. `fitted` and `assumptions` have no default, so that "none" is said on purpose.

    `within_paper`: it compares numbers that the paper prints with each other, and nothing of ours enters. `reread`:
    ours is read from results that are kept in the repository, and not computed again.
    """

    system: Text
    title: Text
    place: Text
    how: How
    fitted: tuple[Fitted, ...]
    assumptions: tuple[Text, ...]
    compute: str | None = None
    why_not: Text | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    hardware: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    quantities: tuple[Quantity, ...] = ()
    shapes: tuple[AnyCheck, ...] = ()
    within_paper: bool = False
    reread: bool = False

    def __post_init__(self) -> None:
        require_unique([*(one.name for one in self.quantities), *(one.claim for one in self.shapes)], "row")
        only = self.how == "paper only"
        require(
            (self.compute is None) == only and (self.why_not is None) != only,
            "an entry has `compute`, or is `paper only` and says `why_not`: give one of the two",
        )
        require(bool(self.quantities or self.shapes), "an entry needs quantities or shapes: add one")
        for one in self.quantities:
            require(only or one.of is not None, f"{one.name!r} lacks `of`, the series that answers it: add it")
        if self.compute is not None:
            self.function()

    def function(self) -> tuple[str, str]:
        """Module and name of the compute function; raises `InvalidInput` where it is not of that form."""
        module, colon, name = (self.compute or "").partition(":")
        parts = [*module.split("."), name]
        if not colon or not all(part.isidentifier() for part in parts):
            raise InvalidInput(f"compute is {self.compute!r}: write module:function")
        return module, name


def entry_names(folder: Path = SHIPPED) -> list[str]:
    """Names of all entries, 3a before 10b."""
    return sorted((path.stem for path in folder.glob("*.yaml")), key=_natural)


def read_entry(name: str, folder: Path = SHIPPED) -> Entry:
    """The entry of that name; raises `InvalidInput` naming the nearest one, or the place of a fault in its file."""
    if name not in entry_names(folder):
        raise unknown("table", name, entry_names(folder))
    place = f"table/{name}.yaml"
    try:
        raw = OmegaConf.to_container(OmegaConf.load(folder / f"{name}.yaml"))
    except (YAMLError, OSError, ValueError) as error:
        raise InvalidInput(f"{place} is no YAML file ({one_line(error)}): repair it") from error
    try:
        return msgspec.convert(raw, Entry)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{place}: {sentence(error, raw, Entry)}") from error


def _natural(name: str) -> list[str | int]:
    """Numbers in a name by their value: text and numbers take turns."""
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"(\d+)", name))]
