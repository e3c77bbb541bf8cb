"""How a session works, and the sentence for a setting that means nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, TypedDict

import torch

from runtime.device.native import core
from runtime.loop.arguments import require
from runtime.swap.budget import MOST_BYTES
from runtime.swap.portfolio import PolicyChoice
from runtime.swap.report import IterationSummary
from runtime.swap.stages import StageSettings
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Hardware

MATCHING = {"features": core.SwapMatching.FEATURES, "index": core.SwapMatching.INDEX}
RECORD_STREAM = {
    "custom": core.SwapRecordStream.CUSTOM,
    "printed": core.SwapRecordStream.PRINTED,
    "torch": core.SwapRecordStream.TORCH,
}
Boundaries = Literal["optimizer", "given"]
Matching = Literal["features", "index"]
RecordStream = Literal["custom", "printed", "torch"]


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """How a session works; `session` says what each means."""

    boundaries: Boundaries = "optimizer"
    stages: StageSettings = field(default_factory=StageSettings)
    matching: Matching = "features"
    guard: bool = True
    record_stream: RecordStream = "custom"
    host_limit_bytes: int | None = None
    sample_every: int = 1
    headroom: float = 0.0

    def __post_init__(self) -> None:
        """Refuse words, numbers and types that mean nothing."""
        for name, known in (
            ("boundaries", ("optimizer", "given")),
            ("matching", tuple(MATCHING)),
            ("record_stream", tuple(RECORD_STREAM)),
        ):
            if getattr(self, name) not in known:
                raise InvalidInput(
                    f"{name}={getattr(self, name)!r} is unknown: choose of {', '.join(map(repr, known))}"
                )
        require("stages", self.stages, StageSettings, "StageSettings(…), or None for the paper's")
        require("guard", self.guard, bool, "True or False")
        require("host_limit_bytes", self.host_limit_bytes, (Integral, NoneType), "bytes, or None for no limit")
        require("sample_every", self.sample_every, Integral, "a whole number, 1 to compare all iterations")
        require("headroom", self.headroom, Real, "a share of the budget, such as 0.1")
        if self.host_limit_bytes is not None and not 0 <= self.host_limit_bytes <= MOST_BYTES:
            shown = f"{self.host_limit_bytes}, below 0" if self.host_limit_bytes < 0 else "beyond any memory"
            raise InvalidInput(f"host_limit_bytes is {shown}: give bytes, or None for no limit")
        if self.sample_every < 1:
            raise InvalidInput(f"sample_every is {self.sample_every}: give 1 to compare all iterations, or more")


@dataclass(frozen=True, kw_only=True)
class SessionParts:
    """What of the program and the machine a session is told of; `session` says what each means."""

    device: torch.device
    hardware: Hardware | None = None
    optimizer: torch.optim.Optimizer | None = None
    model: torch.nn.Module | None = None
    watch: Callable[[IterationSummary], None] | None = None

    def __post_init__(self) -> None:
        """Refuse what is something else."""
        require("model", self.model, (torch.nn.Module, NoneType), "the module that trains, or None")
        require("optimizer", self.optimizer, (torch.optim.Optimizer, NoneType), "the torch.optim.Optimizer, or None")
        require(
            "hardware", self.hardware, (Hardware, NoneType), "a Hardware, as read_hardware(name) returns it, or None"
        )
        if self.watch is not None and not callable(self.watch):
            raise InvalidInput(f"watch is {self.watch!r}: give a function of an IterationSummary, or None")


class SessionOptions(TypedDict, total=False):
    """The keywords of `session`, which says what each means."""

    device: torch.device | str | None
    optimizer: torch.optim.Optimizer | None
    model: torch.nn.Module | None
    boundaries: Boundaries
    solver: str | Sequence[PolicyChoice]
    stages: StageSettings | None
    matching: Matching
    guard: bool
    record_stream: RecordStream
    host_limit_bytes: int | None
    hardware: Hardware | None
    sample_every: int
    headroom: float
    watch: Callable[[IterationSummary], None] | None


def parts_of(options: SessionOptions, device: torch.device) -> SessionParts:
    """The parts among the options; raises `InvalidInput` where one is something else."""
    return SessionParts(device=device, **_among(options, SessionParts, "device"))


def settings_of(options: SessionOptions) -> SessionSettings:
    """The settings among the options; raises `InvalidInput` for what means nothing."""
    given = _among(options, SessionSettings)
    if options.get("stages") is None:  # the paper's
        given.pop("stages", None)
    return SessionSettings(**given)


def require_known(options: SessionOptions) -> None:
    """Raise `TypeError`, as Python does for any function, where a keyword is no option."""
    for name in options:
        if name not in SessionOptions.__annotations__:
            raise TypeError(f"session() got an unexpected keyword argument {name!r}")


def _among(options: SessionOptions, kind: type, *but: str) -> dict[str, Any]:
    """The options that are fields of that dataclass."""
    names = {field.name for field in fields(kind)} - set(but)
    return {name: value for name, value in options.items() if name in names}
