"""Checkpoints on disk: written aside, committed by a rename, verified before they are believed.

`step-N` holds what torch.distributed.checkpoint reads: `.metadata`, and a folder for each node that wrote a part of it.
`manifest.json` has the sums of all files. Who has not got as far as that is `.step-N.gG`, of generation G, and no
checkpoint.
"""

import hashlib
import os
import pickle
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from solvers.ir.errors import InvalidInput

FORM = "bayplan-elastic/1"
MANIFEST, METADATA = "manifest.json", ".metadata"
_WHOLE, _ASIDE = re.compile(r"step-(\d+)"), re.compile(r"\.step-(\d+)\.g(\d+)")


class Sum(msgspec.Struct, frozen=True):
    """What a file must be: its bytes, and their SHA-256."""

    bytes: int
    sha256: str


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What is saved: `signature` tells jobs apart by the names and shapes of their states, `version` by their code."""

    job: str
    signature: str
    version: str
    layers: int


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one node wrote: layers, files by their path in the checkpoint, and the last losses that it knows."""

    node: int
    layers: tuple[int, ...]
    files: dict[str, Sum]
    losses: dict[int, float]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint before `step`, with the losses of all steps that came earlier."""

    form: str
    step: int
    origin: Origin
    losses: tuple[float, ...]
    files: dict[str, Sum]


@dataclass(frozen=True)
class Checkpoint:
    """One that has been verified."""

    path: Path
    manifest: Manifest


class Refused(Exception):
    """A checkpoint cannot be used; the sentence says why."""


def aside(folder: Path, step: int, generation: int) -> Path:
    """Where the parts of a checkpoint are written."""
    return folder / f".step-{step:08d}.g{generation}"


def file_sum(path: Path) -> Sum:
    """The file's sum as it stands on disk."""
    with path.open("rb") as file:
        return Sum(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def write_part(folder: Path, part: Part) -> None:
    """Says that a part is complete, after all of its files are."""
    for name in {str(Path(name).parent) for name in part.files}:
        _sync(folder / name)
    _write(folder / f"part-{part.node}.json", msgspec.json.encode(part))


def parts_of(folder: Path) -> list[Part]:
    """The parts that are complete."""
    return [msgspec.json.decode(path.read_bytes(), type=Part) for path in sorted(folder.glob("part-*.json"))]


def finish(folder: Path, origin: Origin, losses: Mapping[int, float], keep: int) -> Checkpoint | None:
    """Makes a checkpoint of the parts aside in `folder`; None where not all layers are there.

    The rename at the end is what makes it one, of all files or of none; then the oldest but the `keep` last ones go.
    """
    found = _ASIDE.fullmatch(folder.name)
    assert found is not None, "parts are written to where `aside` says"
    step, parts = int(found[1]), parts_of(folder)
    if sorted(layer for part in parts for layer in part.layers) != list(range(origin.layers)):
        return None
    known = {**{at: loss for part in parts for at, loss in part.losses.items()}, **losses}
    if any(at not in known for at in range(step)):
        return None
    (folder / METADATA).write_bytes(pickle.dumps(_merged(folder, parts)))
    files = {name: one for part in parts for name, one in part.files.items()}
    files[METADATA] = file_sum(folder / METADATA)
    _sync(folder / METADATA)
    manifest = Manifest(
        form=FORM, step=step, origin=origin, losses=tuple(known[at] for at in range(step)), files=files
    )  # fmt: skip
    _write(folder / MANIFEST, msgspec.json.encode(manifest))
    target = folder.with_name(f"step-{step:08d}")
    _put(folder, target)
    for part in parts:  # only now: whoever is killed before the rename leaves all that another one needs to finish it
        with suppress(OSError):
            (target / f"part-{part.node}.json").unlink()
    for _, old in steps_in(target.parent)[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return Checkpoint(target, manifest)


def _put(folder: Path, target: Path) -> None:
    """Gives a checkpoint its name; one of that name goes only once the new one is in its place."""
    if target.exists():  # one that could not be used, or of the same step: after a way back
        target.rename(target.with_name(f"replaced-{target.name}-{time.time_ns()}"))
    folder.rename(target)
    _sync(target.parent)
    for old in target.parent.glob("replaced-step-*"):
        shutil.rmtree(old, ignore_errors=True)


def steps_in(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints that a folder seems to hold, newest first, none of them looked at."""
    names = ((_WHOLE.fullmatch(path.name), path) for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(((int(found[1]), path) for found, path in names if found), reverse=True)


def left_aside(folder: Path) -> Iterator[Path]:
    """What is no checkpoint, since some of its parts are lacking; the newest step first, and its last generation."""
    names = ((_ASIDE.fullmatch(path.name), path) for path in folder.iterdir()) if folder.is_dir() else ()
    there = ((int(found[1]), int(found[2]), path) for found, path in names if found)
    yield from (path for _, _, path in sorted(there, reverse=True))


def verified(path: Path, origin: Origin) -> Checkpoint:
    """Reads the whole checkpoint and compares sums; raises `Refused`."""
    try:
        manifest = msgspec.json.decode((path / MANIFEST).read_bytes(), type=Manifest)
    except OSError as error:
        raise Refused(f"the checkpoint {path.name} has no readable {MANIFEST} ({error.strerror})") from error
    except msgspec.DecodeError as error:
        raise Refused(f"the checkpoint {path.name} has a {MANIFEST} that is torn or of another form") from error
    if manifest.form != FORM:
        raise Refused(f"the checkpoint {path.name} is of the form {manifest.form}, and {FORM} is read here")
    if manifest.origin.signature != origin.signature:
        raise Refused(
            f"the checkpoint {path.name} is of {manifest.origin.job}, whose layers, microbatches or seed are not those "
            f"of {origin.job}"
        )
    for name, expected in manifest.files.items():
        try:
            found = file_sum(path / name)
        except OSError as error:
            raise Refused(f"the checkpoint {path.name} lacks {name} ({error.strerror})") from error
        if found != expected:
            raise Refused(
                f"{name} of the checkpoint {path.name} has {found.bytes} bytes with the sum {found.sha256[:12]}, and "
                f"was written with {expected.bytes} and {expected.sha256[:12]}"
            )
    return Checkpoint(path, manifest)


def newest(folder: Path, origin: Origin, most_step: int) -> tuple[Checkpoint | None, list[str]]:
    """The last checkpoint that can be used, of `most_step` at most, and why those behind it cannot.

    Where there is one, the others are renamed: they neither count as kept, nor stand in the way of new ones.
    """
    refused: dict[Path, str] = {}
    for step, path in steps_in(folder):
        if step > most_step:
            continue
        try:
            found = verified(path, origin)
        except Refused as error:
            refused[path] = str(error)
            continue
        for bad in refused:
            with suppress(OSError):
                bad.rename(bad.with_name(f"refused-{bad.name}-{os.getpid()}"))
        return found, list(refused.values())
    return None, list(refused.values())


def require_empty(folder: Path) -> None:
    """Refuse to mix a new training's checkpoints with those that are there."""
    if there := steps_in(folder):
        raise InvalidInput(
            f"{folder} holds {len(there)} checkpoints already, the last one of step {there[0][0]}: go on with them "
            "(resume), or name another folder"
        )


def _merged(folder: Path, parts: list[Part]) -> object:
    """One metadata for all parts, as torch.distributed.checkpoint would have written it for one."""
    merged = None
    for part in parts:
        name = f"part-{part.node}"
        path = folder / name / METADATA
        if not path.exists():  # its layers have no states
            continue
        found = pickle.loads(path.read_bytes())
        stored = {
            index: replace(info, relative_path=f"{name}/{info.relative_path}")
            for index, info in found.storage_data.items()
        }
        if merged is None:
            merged = replace(found, storage_data=stored)
            continue
        merged.state_dict_metadata.update(found.state_dict_metadata)
        merged.planner_data.update(found.planner_data)
        merged.storage_data.update(stored)
    return merged


def _write(path: Path, content: bytes) -> None:
    """The file is there with all of its content, or not at all."""
    beside = path.with_name(f"{path.name}.new")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise
    _sync(path.parent)


def _sync(path: Path) -> None:
    """A file's content, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
