"""A node's part of a checkpoint: its layers under the names of a plain torch state, written while training goes on.

Names are those of `torch.nn.Sequential(*layers)`: `model.3.inner.weight`, `optimizer.3.inner.weight.exp_avg`, and
`param_groups.3.0.lr` for the hyperparameters of layer 3's optimizer.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from runtime.elastic.checkpoint import Origin, Part, aside, file_sum, write_part
from runtime.elastic.faults import JobFault, PeerLost, SupervisorLost
from runtime.elastic.identity import version_of
from runtime.elastic.job import ElasticJob
from runtime.elastic.layer import Layer
from runtime.elastic.messages import Saved, Upward

LOOK_S = 0.02
"""How often it is looked whether a generation has ended, while a part is waited for."""
_NAME = re.compile(r"(model|optimizer|param_groups)\.(\d+)\.(.*)")


def origin_of(name: str, job: ElasticJob) -> Origin:
    """What tells this job's checkpoints from others'. Makes each layer once."""
    found = hashlib.sha256(f"{job.microbatches} {job.seed}".encode())
    with torch.random.fork_rng(devices=[]):
        for number in range(len(job.layers)):
            layer = Layer(job, number, canonical=False)
            found.update(type(layer.optimizer).__name__.encode())
            for key, value in layer.module.state_dict().items():
                found.update(f"{number}.{key} {value.dtype} {tuple(value.shape)}".encode())
    return Origin(job=name, signature=found.hexdigest(), version=version_of(name), layers=len(job.layers))


def plain(layers: Iterable[Layer]) -> dict[str, Any]:
    """The layers' states under plain names; the tensors are the layers' own. Kinds without any are left out."""
    found: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}, "param_groups": {}}
    for layer in layers:
        names = [f"{layer.number}.{name}" for name, _ in layer.module.named_parameters()]
        for name, value in layer.module.state_dict().items():
            found["model"][f"{layer.number}.{name}"] = value
        if layer.optimizer is not None:
            state = layer.optimizer.state_dict()
            for index, values in state["state"].items():
                found["optimizer"][names[index]] = dict(values)
            found["param_groups"][str(layer.number)] = state["param_groups"]
    return {kind: names for kind, names in found.items() if names}


class PartWriter:
    """Writes a node's parts in the background, one at a time. `tell` hears of each, also of what went wrong."""

    def __init__(self, folder: Path, node: int, patience_s: float, tell: Callable[[Upward], None]) -> None:
        self._folder, self.node, self._patience_s, self._tell = folder, node, patience_s, tell
        self._running: Future[None] | None = None

    def save(
        self, layers: Iterable[Layer], step: int, generation: int, losses: Mapping[int, float],
        is_over: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Copies the layers' states, and begins to write them; skipped where the one before still takes too long.

        Raises `PeerLost` where the generation ends while that is waited for: others wait for this node by then.
        """
        if not (mine := list(layers)):
            return
        done = partial(
            self._written, step=step, generation=generation, layers=tuple(one.number for one in mine),
            losses=dict(losses),
        )  # fmt: skip
        try:
            self._wait_within(is_over)
            folder = aside(self._folder, step, generation) / f"part-{self.node}"
            folder.mkdir(parents=True, exist_ok=True)
            writing = _begin(plain(mine), folder)
        except TooLate:
            self._say(step, generation, f"the disk had not taken the one before within {self._patience_s:g} s")
        except OSError as error:
            self._say(step, generation, _sentence(error))
        else:
            self._running = Future()
            writing.add_done_callback(done)

    def wait(self, most_s: float | None = None) -> None:
        """Until the last part is written, or has failed; raises `TimeoutError`."""
        if self._running is not None:
            self._running.result(most_s)

    def _wait_within(self, is_over: Callable[[], bool]) -> None:
        """Until the last part is written; raises `TimeoutError`, or `PeerLost`."""
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return self.wait(LOOK_S)
            except TooLate:
                if is_over():
                    raise PeerLost("the generation ended before the disk had taken the last part") from None
                if time.monotonic() > until:
                    raise

    def _written(
        self, done: Future[Any], step: int, generation: int, layers: tuple[int, ...], losses: dict[int, float]
    ) -> None:
        """In the thread that wrote: sums, and the word to the supervisor."""
        assert self._running is not None
        try:
            done.result()
            folder = aside(self._folder, step, generation)
            files = {str(path.relative_to(folder)): file_sum(path) for path in (folder / f"part-{self.node}").iterdir()}
            write_part(folder, Part(node=self.node, layers=layers, files=files, losses=losses))
            self._say(step, generation, "", layers)
        except BaseException as error:  # whatever the library's threads raise ends this part only
            self._say(step, generation, _sentence(error))
        finally:
            self._running.set_result(None)

    def _say(self, step: int, generation: int, fault: str, layers: tuple[int, ...] = ()) -> None:
        with suppress(SupervisorLost):  # who then finishes the checkpoint finds the part by its file
            self._tell(Saved(node=self.node, generation=generation, step=step, layers=layers, fault=fault))


def _begin(state: dict[str, Any], folder: Path) -> Future[Any]:
    """The copy is made when this returns; what it returns ends when all is on the disk."""
    from torch.distributed.checkpoint.filesystem import FileSystemWriter  # a second, for those only who save
    from torch.distributed.checkpoint.state_dict_saver import async_save

    if not state:
        nothing: Future[Any] = Future()
        nothing.set_result(None)
        return nothing
    writing = async_save(state, storage_writer=FileSystemWriter(folder, sync_files=True), no_dist=True)
    assert isinstance(writing, Future), "a writer that stages by itself returns the future of its files"
    return writing


def _sentence(error: BaseException) -> str:
    """Of what the library tells, the system's own words, if there are any."""
    for one in (error, error.__cause__, *getattr(error, "failures", {}).values()):
        inner = one[0] if isinstance(one, tuple) else one
        if isinstance(inner, OSError) and inner.errno is not None:
            return os.strerror(inner.errno)
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else 'nothing said'}"


def load_layers(path: Path, layers: Mapping[int, Layer]) -> None:
    """Fills layers from a checkpoint; raises `JobFault` where it does not fit."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    if not layers:
        return
    try:
        reader = FileSystemReader(path)
        flat = _places(reader.read_metadata(), layers)
        load(flat, storage_reader=reader, no_dist=True)
        for number, layer in layers.items():
            layer.load(_state_of(layer, {key: value for key, value in flat.items() if _layer_of(key) == number}))
    except Exception as error:
        raise JobFault(
            f"the checkpoint {path} could not be loaded ({_sentence(error)}): resume from another"
        ) from error


def _places(metadata: Any, layers: Mapping[int, Layer]) -> dict[str, Any]:
    """Room for all that the checkpoint has of these layers."""
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    return {
        key: torch.empty(tuple(one.size), dtype=one.properties.dtype) if isinstance(one, TensorStorageMetadata) else 0
        for key, one in metadata.state_dict_metadata.items()
        if _layer_of(key) in layers
    }


def _state_of(layer: Layer, flat: Mapping[str, Any]) -> dict[str, Any]:
    """A layer's `state`, from plain names."""
    names = [name for name, _ in layer.module.named_parameters()]
    module: dict[str, Any] = {}
    states: dict[int, dict[str, Any]] = {}
    groups: dict[int, dict[str, Any]] = {}
    for key, value in flat.items():
        kind, _, rest = _split(key)
        if kind == "model":
            module[rest] = value
        elif kind == "optimizer":
            name = max((one for one in names if rest.startswith(f"{one}.")), key=len)
            states.setdefault(names.index(name), {})[rest[len(name) + 1 :]] = value
        else:
            number, _, what = rest.partition(".")
            groups.setdefault(int(number), {})[what] = value
    optimizer = {"state": states, "param_groups": [groups[number] for number in sorted(groups)]}
    return {"module": module, "optimizer": None if layer.optimizer is None else optimizer}


def _split(key: str) -> tuple[str, int, str]:
    found = _NAME.fullmatch(key)
    if found is None:
        raise JobFault(f"a checkpoint holds {key!r}, which is no layer's: report this")
    return found[1], int(found[2]), found[3]


def _layer_of(key: str) -> int:
    return _split(key)[1]
