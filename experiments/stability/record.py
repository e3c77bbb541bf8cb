"""What one policy's training left behind, step by step, and how it differs from another one's."""

import csv
import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch

from experiments.bits import same_bits
from experiments.stability.settings import Policy
from solvers.ir import InvalidInput


class Entry(NamedTuple):
    """One step: its loss, the validation loss after it (where there was one), the scaler, and its time."""

    step: int
    loss: float
    validation: float | None
    skipped: bool
    scale: float
    step_us: float


@dataclass(frozen=True, kw_only=True)
class Run:
    """One policy's training. `reason` says why it did not finish, at step `failed_at`; then `parameters` is None.

    `parameters` is the SHA-256 of all parameters' bytes after the last step; `session` what the session counted.
    """

    policy: Policy
    entries: tuple[Entry, ...]
    peak_bytes: int = 0
    parameters: str | None = None
    out_of_memory: bool = False
    reason: str | None = None
    failed_at: int | None = None
    session: dict[str, Any] | None = None

    @property
    def losses(self) -> torch.Tensor:
        """The losses of all steps that it did, as they were computed."""
        return torch.tensor([entry.loss for entry in self.entries], dtype=torch.float32)

    @property
    def validations(self) -> torch.Tensor:
        """The validation losses."""
        known = [entry.validation for entry in self.entries if entry.validation is not None]
        return torch.tensor(known, dtype=torch.float32)

    @property
    def skipped(self) -> int:
        """Steps whose gradients overflowed."""
        return sum(entry.skipped for entry in self.entries)

    @property
    def mean_step_us(self) -> float | None:
        """The mean time of a step, validation apart, on the device's clock."""
        return sum(entry.step_us for entry in self.entries) / len(self.entries) if self.entries else None

    def first_difference(self, other: "Run") -> int | None:
        """The first step whose loss, or the loss of the validation after it, has other bits; None where none has."""
        for mine, theirs in zip(self.entries, other.entries, strict=False):
            if not _same(mine.loss, theirs.loss) or not _same(mine.validation, theirs.validation):
                return mine.step
        return None

    def equals(self, other: "Run") -> dict[str, bool]:
        """Whether all losses, validation losses and parameters are equal, bit by bit (NaN too)."""
        return {
            "equal_losses": same_bits(self.losses, other.losses),
            "equal_validations": same_bits(self.validations, other.validations),
            "equal_parameters": self.parameters is not None and self.parameters == other.parameters,
        }


def _same(mine: float | None, theirs: float | None) -> bool:
    """What one of them has not reached is no difference."""
    if mine is None or theirs is None:
        return True
    return mine == theirs or (math.isnan(mine) and math.isnan(theirs))


def digest(tensors: Sequence[torch.Tensor]) -> str:
    """The SHA-256 of the bytes of CPU tensors, in order."""
    known = hashlib.sha256()
    for tensor in tensors:
        known.update(tensor.contiguous().numpy().tobytes())
    return known.hexdigest()


def entries_to_csv(entries: Sequence[Entry]) -> str:
    """A line for each step, all digits."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(Entry._fields)
    lines.writerows(["" if value is None else repr(value) for value in entry] for entry in entries)
    return text.getvalue()


def entries_from_csv(text: str, place: str) -> tuple[Entry, ...]:
    """The entries that `entries_to_csv` wrote; raises `InvalidInput` naming the line."""
    found = []
    for number, line in enumerate(csv.DictReader(io.StringIO(text)), 2):
        try:
            found.append(
                Entry(
                    step=int(line["step"]),
                    loss=float(line["loss"]),
                    validation=float(line["validation"]) if line["validation"] else None,
                    skipped=line["skipped"] == "True",
                    scale=float(line["scale"]),
                    step_us=float(line["step_us"]),
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{place} line {number} is no step ({error}): remove the file") from error
    return tuple(found)


def run_to_raw(run: Run) -> dict[str, Any]:
    """Everything but the entries, as JSON holds it."""
    raw = {field.name: getattr(run, field.name) for field in fields(run) if field.name != "entries"}
    return raw | {"policy": run.policy.value}


def run_from_raw(raw: dict[str, Any], entries: tuple[Entry, ...]) -> Run:
    """The inverse."""
    return Run(**{**raw, "policy": Policy[raw["policy"]], "entries": entries})
