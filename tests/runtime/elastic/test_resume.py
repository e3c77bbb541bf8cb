"""What peers cannot give comes from a checkpoint, and trainings go on from one: the bits are those of one process."""

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.elastic import Options, parse_kills, train
from runtime.elastic.checkpoint import steps_in
from solvers.ir import InvalidInput
from tests.runtime.elastic.jobs import costs
from tests.runtime.elastic.test_train import JOB, live, same, workers


def test_all_owners_of_a_layer_are_gone_then_the_training_is_resumed(tmp_path: Path) -> None:
    """The first stage's nodes die in step 5 and in the recovery from that, before layers travel: everybody goes back.

    The checkpoint before step 4 may not have been on the disk by then: it is that one, or the one before step 2.
    Then the last checkpoint is damaged: the training is resumed from the one before it, by other processes.
    """
    outcome = live(4, 7, "0@5.vote, 2@5.regroup", checkpoint_dir=tmp_path, checkpoint_every=2)
    same(outcome, 7)
    last = outcome.recoveries[-1]
    assert last.restored.startswith("layers 0-2 of 6 have no holder alive")
    assert last.restored.endswith(f"; all layers go back to the checkpoint before step {last.step}")
    assert last.step in (2, 4) and last.nodes == 2
    assert [event["restored"] for event in outcome.events if event["event"] == "generation"][-1] == last.restored
    assert [step for step, _ in steps_in(tmp_path)] == [7, 6, 4]  # the last step's, too; three are kept
    assert outcome.resumed is None and outcome.warnings == ()

    (tmp_path / "step-00000007" / ".metadata").write_bytes(b"torn")
    resumed = live(4, 9, "1@7.forward", checkpoint_dir=tmp_path, resume=True)
    same(resumed, 9)
    assert resumed.resumed == 6
    (warning,) = resumed.warnings
    assert warning.startswith(".metadata of the checkpoint step-00000007 has 4 bytes")
    assert warning.endswith(": the one before is used")
    assert [step for step, _ in steps_in(tmp_path)] == [9, 6, 4]
    _what_is_refused(tmp_path)


def _what_is_refused(folder: Path) -> None:
    """In a sentence, before any process is started."""
    with pytest.raises(InvalidInput, match="holds 3 checkpoints already, the last one of step 9: go on with them"):
        live(4, 12, checkpoint_dir=folder)
    with pytest.raises(InvalidInput, match=r"step-00000009 is the end of 9 steps already: ask for more of them$"):
        live(4, 9, checkpoint_dir=folder, resume=True)
    with pytest.raises(InvalidInput, match=r"can be resumed from \(the checkpoint .* is of .*:small, whose layers"):
        other = "tests.runtime.elastic.jobs:other"
        train(other, nodes=4, steps=20, pipeline=2, options=Options(checkpoint_dir=folder, resume=True))
    assert not workers()


def test_nothing_to_resume_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"can be resumed from \(it holds no checkpoint before step 3\): leave"):
        live(2, 3, checkpoint_dir=tmp_path / "new", resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"^checkpoints cannot be written to .* \(Not a directory\): name another"):
        live(2, 3, checkpoint_dir=tmp_path / "file" / "new")
    with pytest.raises(InvalidInput, match=r"^save_on_exit is True, but there is no checkpoint_dir: name a folder$"):
        Options(save_on_exit=True)
    with pytest.raises(InvalidInput, match=r"^keep_checkpoints is 0, below 1"):
        Options(checkpoint_dir=tmp_path, keep_checkpoints=0)


@pytest.mark.soak
def test_a_failure_while_all_go_back_to_a_checkpoint(tmp_path: Path) -> None:
    """All nodes of the first stage die, two in the recovery from the first one; then one more while all go back."""
    kills = "0@5.vote, 2@5.regroup, 4@5.regroup, 1@4.regroup, 1@2.regroup"  # who is killed is not killed again
    outcome = live(6, 8, kills, checkpoint_dir=tmp_path, checkpoint_every=2)
    same(outcome, 8)
    assert outcome.recoveries[-1].nodes == 2
    for one in outcome.recoveries[-2:]:
        assert one.step in (2, 4) and one.restored.endswith(f"the checkpoint before step {one.step}")


@pytest.mark.soak
def test_rerouted_trainings_keep_checkpoints(tmp_path: Path) -> None:
    """Survivors of a stage do its lost passes; each layer is saved by one of those that are left."""
    injections, _ = parse_kills("1@1.forward")
    options = Options(
        canonical=True, policy="reroute", problem=costs(4), checkpoint_dir=tmp_path, checkpoint_every=2, hang_s=60,
        timeout_s=60, injections=injections,
    )  # fmt: skip
    outcome = train(JOB, nodes=4, steps=4, pipeline=2, options=options)
    same(outcome, 4)
    assert "rerouted around 1" in outcome.recoveries[0].layout
    same(train(JOB, nodes=4, steps=7, pipeline=2, options=replace(options, injections=(), resume=True)), 7)
