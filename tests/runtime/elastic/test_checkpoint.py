"""Checkpoints on disk: what is written is what was there, under plain names; what is damaged is refused."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
import torch
from torch import nn

from runtime.elastic import load_job
from runtime.elastic.checkpoint import (
    Origin,
    aside,
    finish,
    left_aside,
    newest,
    parts_of,
    require_empty,
    steps_in,
    verified,
)
from runtime.elastic.faults import JobFault, PeerLost
from runtime.elastic.layer import Layer
from runtime.elastic.messages import Saved, Upward
from runtime.elastic.parts import PartWriter, load_layers, origin_of
from solvers.ir import InvalidInput
from tests.runtime.elastic.jobs import LAYERS, small

JOB = "tests.runtime.elastic.jobs:small"
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
LOSSES = {0: 3.5, 1: 3.25, 2: 3.0, 3: 2.75}


def origin() -> Origin:
    return origin_of(JOB, load_job(JOB, torch.device("cpu")))


def trained() -> list[Layer]:
    """All layers after an optimizer's step with made-up gradients."""
    job = small(torch.device("cpu"))
    layers = [Layer(job, number, canonical=True) for number in range(LAYERS)]
    for layer in layers:
        layer.flat_gradients().copy_(torch.arange(layer.flat_gradients().numel()) * 2**30 - 2**36)
        layer.update()
    return layers


def save(folder: Path, step: int, generation: int = 1, nodes: int = 2) -> list[str]:
    """A checkpoint by two nodes, which own every second layer; its digests. The layers are changed at once."""
    told: list[Upward] = []
    layers = trained()
    digests = [layer.digest() for layer in layers]
    for node in range(nodes):
        writer = PartWriter(folder, node, 60, told.append)
        writer.save(layers[node::2], step, generation, {step - 1: LOSSES[step - 1]}, lambda: False)
        for layer in layers[node::2]:
            for parameter in layer.module.parameters():
                parameter.data.fill_(7)  # the copy was made before
        writer.wait()
    assert told == [
        Saved(node=node, generation=generation, step=step, layers=tuple(range(node, LAYERS, 2)), fault="")
        for node in range(nodes)
    ]
    return digests


def made(folder: Path, *steps: int, keep: int = 9) -> None:
    for step in steps:
        save(folder, step)
        assert finish(aside(folder, step, 1), origin(), LOSSES, keep) is not None


def test_what_is_loaded_are_the_bits_of_the_moment(tmp_path: Path) -> None:
    digests = save(tmp_path, 2)
    whole = finish(aside(tmp_path, 2, 1), origin(), {0: 3.5}, keep=3)
    assert whole is not None
    assert whole.manifest.losses == (3.5, 3.25)  # the second one was known to the nodes only
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]
    job = small(torch.device("cpu"))
    fresh = {number: Layer(job, number, canonical=True) for number in (1, 4, 5)}  # of both parts
    load_layers(whole.path, fresh)
    assert {number: layer.digest() for number, layer in fresh.items()} == {number: digests[number] for number in fresh}


def test_names_are_those_of_a_plain_state(tmp_path: Path) -> None:
    """torch's own tool reads the checkpoint, and the layers one after the other take the state."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    made(tmp_path / "kept", 2)
    dcp_to_torch_save(tmp_path / "kept" / "step-00000002", tmp_path / "plain.pt")
    state = torch.load(tmp_path / "plain.pt")
    whole = nn.Sequential(*(layer() for layer in small(torch.device("cpu")).layers))
    whole.load_state_dict(state["model"])
    expected = [value for layer in trained() for value in layer.module.state_dict().values()]
    assert all(torch.equal(one, other) for one, other in zip(whole.state_dict().values(), expected, strict=True))
    assert sorted(state["optimizer"]["3.inner.weight"]) == ["exp_avg", "exp_avg_sq", "step"]
    assert state["param_groups"]["3"][0]["lr"] == 1e-2


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    made(tmp_path, 1, 2, 3, 4, keep=2)
    assert [step for step, _ in steps_in(tmp_path)] == [4, 3]
    with pytest.raises(InvalidInput, match="holds 2 checkpoints already, the last one of step 4: go on with them"):
        require_empty(tmp_path)


def test_parts_alone_are_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 2, nodes=1)
    folder = aside(tmp_path, 2, 1)
    assert [part.layers for part in parts_of(folder)] == [(0, 2, 4)]
    assert finish(folder, origin(), LOSSES, keep=3) is None
    assert steps_in(tmp_path) == []
    assert list(left_aside(tmp_path)) == [folder]


def test_one_of_the_same_step_goes_once_the_new_one_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is killed before the rename, the next one finds all that it needs to finish the checkpoint."""
    made(tmp_path, 2)
    folder = aside(tmp_path, 2, 4)
    save(tmp_path, 2, generation=4)

    def killed(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", _but_for(folder, killed))
        finish(folder, origin(), LOSSES, keep=3)
    assert {len(list(path.glob("part-?/.metadata"))) for path in tmp_path.iterdir()} == {2}  # old and new one
    assert finish(folder, origin(), LOSSES, keep=3) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002"]
    assert list((tmp_path / "step-00000002").glob("part-*.json")) == []
    assert verified(tmp_path / "step-00000002", origin()).manifest.step == 2


def _but_for(folder: Path, other: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
    rename = Path.rename
    return lambda self, target: other(self, target) if self == folder else rename(self, target)


def test_what_is_left_aside_comes_newest_first_by_number(tmp_path: Path) -> None:
    for step, generation in ((2, 9), (2, 10), (10, 1), (9, 12)):
        aside(tmp_path, step, generation).mkdir()
    assert list(left_aside(tmp_path)) == [
        aside(tmp_path, step, generation) for step, generation in ((10, 1), (9, 12), (2, 10), (2, 9))
    ]


def _torn(path: Path) -> None:
    file = next(path.glob("part-0/*.distcp"))
    file.write_bytes(file.read_bytes()[:-100])


def _changed(path: Path) -> None:
    file = next(path.glob("part-1/*.distcp"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _other_form(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "form": "bayplan-elastic/9"}))


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (
        _torn,
        r"^part-0/__0_0.distcp of the checkpoint step-00000003 has \d+ bytes with the sum .*, and was written",
    ),
    (_changed, r"^part-1/__0_0.distcp of the checkpoint step-00000003 has (\d+) bytes .*, and was written with \1 and"),
    (lambda path: shutil.rmtree(path / "part-1"), r"^the checkpoint step-00000003 lacks part-1/.* \(No such file"),
    (lambda path: (path / ".metadata").unlink(), r"^the checkpoint step-00000003 lacks .metadata \(No such file"),
    (lambda path: (path / "manifest.json").unlink(), r"^the checkpoint step-00000003 has no readable manifest.json"),
    (lambda path: (path / "manifest.json").write_text('{"form": "bay'), r"^the checkpoint .* is torn or of another"),
    (
        _other_form,
        r"^the checkpoint step-00000003 is of the form bayplan-elastic/9, and bayplan-elastic/1 is read",
    ),
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    made(folder, 2, 3)
    return folder


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES)
def test_a_damaged_one_is_refused_and_the_one_before_is_used(
    kept: Path, tmp_path: Path, damage: Callable[[Path], object], sentence: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kept, folder)
    damage(folder / "step-00000003")
    found, refused = newest(folder, origin(), 9)
    assert found is not None and found.manifest.step == 2
    (told,) = refused
    assert re.search(sentence, told), told
    assert [step for step, _ in steps_in(folder)] == [2]  # the other one does not count as kept any more
    assert any(path.name.startswith("refused-step-00000003") for path in folder.iterdir())


def test_another_jobs_is_refused_and_stays(kept: Path) -> None:
    job = load_job(JOB, torch.device("cpu"))
    other = origin_of("tests.runtime.elastic.jobs:other", replace(job, seed=job.seed + 1))
    found, refused = newest(kept, other, 9)
    assert found is None
    assert refused[0].startswith(
        f"the checkpoint step-00000003 is of {JOB}, whose layers, microbatches or seed are not"
    )
    assert [step for step, _ in steps_in(kept)] == [3, 2]
    assert (
        origin_of("tests.runtime.elastic.jobs:other", job).signature == origin().signature
    )  # its name alone makes it no other job
    assert origin_of(JOB, replace(job, optimizer=torch.optim.SGD)).signature != origin().signature


def test_only_earlier_ones_are_gone_back_to(kept: Path) -> None:
    found, refused = newest(kept, origin(), 2)
    assert (found and found.manifest.step, refused) == (2, [])
    assert newest(kept, origin(), 1) == (None, [])


def test_what_vanishes_before_it_is_loaded_is_told(kept: Path, tmp_path: Path) -> None:
    layers = {0: Layer(small(torch.device("cpu")), 0, canonical=True)}
    with pytest.raises(JobFault, match=r"could not be loaded \(No such file or directory\): resume from another$"):
        load_layers(tmp_path / "nowhere", layers)


def test_a_folder_that_cannot_be_written_is_told_and_nothing_raised(tmp_path: Path) -> None:
    told: list[Upward] = []
    (tmp_path / "file").touch()
    PartWriter(tmp_path / "file", 3, 60, told.append).save(trained()[:1], 4, 1, {}, lambda: False)
    (said,) = told
    assert isinstance(said, Saved)
    assert (said.node, said.step, said.layers, said.fault) == (3, 4, (), "Not a directory")


def test_a_slow_disk_is_waited_for_while_the_generation_goes_on_and_no_longer_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part before is on its way to the disk, which has not taken it yet."""
    told: list[Upward] = []
    writer, disk = PartWriter(tmp_path, 3, 60, told.append), Event()
    monkeypatch.setattr(os, "fsync", lambda descriptor: disk.wait(60))
    looks = iter((False, False, True))
    writer.save(trained()[:1], 4, 1, {}, lambda: True)  # nothing is waited for
    with pytest.raises(PeerLost, match=r"^the generation ended before the disk had taken the last part$"):
        writer.save(trained()[:1], 5, 1, {}, lambda: next(looks))
    assert next(looks, None) is None
    impatient = PartWriter(tmp_path, 4, 0.05, told.append)
    impatient.save(trained()[1:2], 4, 1, {}, lambda: False)
    impatient.save(trained()[1:2], 5, 1, {}, lambda: False)
    disk.set()
    writer.wait(60)
    impatient.wait(60)
    faults = {(one.node, one.step): one.fault for one in told if isinstance(one, Saved)}
    assert faults == {(3, 4): "", (4, 4): "", (4, 5): "the disk had not taken the one before within 0.05 s"}


def test_sums_are_of_the_whole_file(kept: Path) -> None:
    found, _ = newest(kept, origin(), 9)
    assert found is not None
    assert len(found.manifest.files) == 5
    for name, expected in found.manifest.files.items():
        content = (found.path / name).read_bytes()
        assert (expected.bytes, expected.sha256) == (len(content), hashlib.sha256(content).hexdigest())
