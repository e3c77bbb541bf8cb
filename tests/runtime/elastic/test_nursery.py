"""The nursery's last word: the checkpoint that it makes of what was saved, or why it could not."""

import os
from pathlib import Path

import pytest

from runtime.elastic.checkpoint import aside, steps_in
from runtime.elastic.messages import Config, Saving
from runtime.elastic.nursery import Nursery
from tests.runtime.elastic.test_checkpoint import JOB, LOSSES, origin, save

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def last_word(folder: Path) -> str:
    """Of a nursery without workers whose stdin has ended."""
    saving = Saving(folder=str(folder), every=1, keep=3, on_exit=True, origin=origin())
    config = Config(
        job=JOB, host="127.0.0.1", port=1, steps=9, canonical=True, timeout_s=1, hang_s=1,
        injections=(), saving=saving,
    )  # fmt: skip
    heard, terminal = os.pipe()
    nursery = Nursery(config, folder, terminal)
    nursery._losses |= LOSSES
    nursery._end_alone()
    os.close(terminal)
    with os.fdopen(heard) as said:
        return said.read()


def test_the_newest_whole_one_becomes_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 2, generation=10)
    save(tmp_path, 2, generation=9, nodes=1)
    save(tmp_path, 3, nodes=1)
    assert "its state after 2 steps is in" in last_word(tmp_path)
    assert [step for step, _ in steps_in(tmp_path)] == [2]


@pytest.mark.parametrize(
    ("file", "why"), [("part-0.json", "(DecodeError: "), ("part-0/.metadata", "(UnpicklingError: ")]
)
def test_a_torn_part_is_told_and_the_one_before_is_taken(tmp_path: Path, file: str, why: str) -> None:
    save(tmp_path, 3)
    (aside(tmp_path, 3, 1) / file).write_bytes(b"{torn")
    said = last_word(tmp_path)
    assert f"its state could not be saved {why}" in said
    assert said.endswith("): the checkpoint before stands\n")
    save(tmp_path, 2)
    assert "its state after 2 steps is in" in last_word(tmp_path)


def test_where_nothing_was_saved_it_says_so(tmp_path: Path) -> None:
    assert "not all layers came to the same step: the checkpoint before stands" in last_word(tmp_path)
