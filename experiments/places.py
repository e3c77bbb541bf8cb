"""Where a run or a sweep is kept: `run_dir`, Hydra's own `hydra.run.dir` and `hydra.sweep.dir`, or a new folder."""

import re
from pathlib import Path

from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf

from experiments.sentences import in_sentences
from solvers.ir import InvalidInput

FRESH = "runs/${name}/${now:%Y%m%d-%H%M%S}"
"""What conf/frame.yaml says of both of Hydra's settings."""


def asked_place(config: DictConfig, run_dir: str | None, what: str) -> str | None:
    """The folder that was asked for; None: a new one. `what` is `run` or `sweep`. Raises `InvalidInput`."""
    raw = OmegaConf.to_container(config.hydra[what], resolve=False)
    assert isinstance(raw, dict)
    if raw["dir"] == FRESH:
        return _usable("run_dir", run_dir)
    name = f"hydra.{what}.dir"
    if run_dir is not None:
        raise InvalidInput(f"run_dir and {name} are both given, and mean the same: leave one of them out")
    with in_sentences():
        return _usable(name, str(config.hydra[what].dir))


def quoted(text: str) -> str:
    """Text as the value of an override that means this text, whatever stands in it."""
    plain = re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", text)  # no interpolation
    return QuotedString(text=plain, quote=Quote.single).with_quotes()


def inner_place(subdir: str) -> str:
    """A cell's folder within the sweep's; raises `InvalidInput` for any other place, and for the sweep's own."""
    place = Path(subdir)
    if place.is_absolute() or ".." in place.parts or not place.parts:
        raise InvalidInput(
            f"hydra.sweep.subdir is {subdir!r}, which is no folder inside the sweep's: give a relative name without "
            "'..', or leave it out"
        )
    _require_one_line("hydra.sweep.subdir", subdir)
    return subdir


def _require_one_line(name: str, text: str) -> None:
    """Launchers write folders' names into scripts."""
    if len(text.splitlines()) > 1 or text != text.rstrip("\r\n"):
        raise InvalidInput(f"{name} is {text!r}, which holds a line break: choose a name of one line")


def _usable(name: str, place: str | None) -> str | None:
    """Hydra would resolve a `${` in the folder's whole path, and takes an empty name for the working folder."""
    if place is not None and not place.strip():
        raise InvalidInput(f"{name} is empty: name a folder, or leave it out for a new one")
    whole = Path(place or "").absolute()
    _require_one_line(name, str(whole))
    if "${" in str(whole):
        raise InvalidInput(f"the folder {whole} has ${{ in its name, which Hydra would resolve: choose another folder")
    return place
