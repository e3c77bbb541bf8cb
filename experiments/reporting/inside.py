"""Files of a run's folder as its page reads them: none that lies elsewhere, none of any size, no YAML that unfolds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from solvers.ir import InvalidInput
from solvers.ir.codec import read_text
from solvers.ir.sentences import one_line

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 50
"""How deep settings may be nested."""
MIB = 2**20


class TooLarge(InvalidInput):
    """A file that is larger than what is left to read."""


@dataclass
class Budget:
    """How many bytes of one sort of files are still read, in all."""

    left: int


@dataclass
class Inside:
    """The folder; what is not read of it is told in `remarks`, once."""

    root: Path
    remarks: list[str] = field(default_factory=list)

    def remark(self, sentence: str) -> None:
        """Tell what is not shown."""
        if sentence not in self.remarks:
            self.remarks.append(sentence)

    def name_of(self, name: str) -> str | None:
        """The same place, as the folder itself calls it, without links and `..`; None, and a remark, if outside."""
        try:
            place, root = (self.root / name).resolve(), self.root.resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL, a loop of links
            self.remark(f"{_short(name)} is left out: it is no name of a file ({one_line(error)})")
            return None
        if not place.is_relative_to(root):
            self.remark(f"{_short(name)} is left out: it leads out of the folder")
            return None
        return str(place.relative_to(root))

    def file(self, name: str) -> Path | None:
        """A regular file of the folder; None where there is none, and with a remark where it lies outside."""
        known = self.name_of(name)
        if known is None:
            return None
        try:
            return self.root / name if (self.root / name).is_file() else None
        except (OSError, ValueError) as error:  # a name of thousands of letters
            self.remark(f"{_short(name)} is left out: it cannot be looked for ({one_line(error)})")
            return None

    def files(self, folder: str, pattern: str, *, deep: bool = False) -> Sequence[Path]:
        """What stands in one of its folders, sorted, links and all; nothing, and a remark, of a folder outside."""
        known, place = self.name_of(folder), self.root / folder
        if known is None or not place.is_dir():
            return []
        return sorted(place.rglob(pattern) if deep else place.glob(pattern))

    def text(self, name: str, budget: Budget) -> str | None:
        """A file's text; None where there is none. Raises `InvalidInput` where it cannot be read, or is too large."""
        place = self.file(name)
        if place is None:
            return None
        size = place.stat().st_size
        if size > budget.left:
            raise TooLarge(f"{name} is left out: it has {size / MIB:,.1f} MiB, and {budget.left / MIB:,.1f} are read")
        budget.left -= size
        return read_text(place)


def plain_yaml(text: str) -> Any:
    """Settings as plain values; raises `InvalidInput` for what is none, and for aliases, which unfold without end."""
    try:
        depth = 0
        for event in yaml.parse(text, Loader=LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > DEEPEST:
                raise InvalidInput(f"the settings have aliases, or are nested more than {DEEPEST} deep")
        return yaml.load(text, Loader=LOADER)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError, TypeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"the settings are no YAML with plain values ({one_line(error)})") from error


def _short(name: str) -> str:
    return name if len(name) <= 200 else f"{name[:200]}… ({len(name)} letters)"
