"""What a training that went on was: losses, recoveries with their parts, and what stood where."""

from dataclasses import dataclass, field

PARTS = ("detect", "decide", "regroup", "transfer", "redo")
"""The parts of a recovery, in µs: until the failure is known; the plan; survivors stop and new groups stand; layers
travel; the first step."""


@dataclass(frozen=True)
class Recovery:
    """From one generation to the next. `lost` and `joined`: nodes; `moved`: layers that travelled.

    `parts_us` by `PARTS`; `detect` is None where nobody knows when the failure happened (a kill from outside), and all
    are None for a recovery that a further failure cut short. `why` is empty where nodes only joined.
    """

    generation: int
    step: int
    nodes: int
    lost: tuple[int, ...]
    joined: tuple[int, ...]
    moved: int
    moved_bytes: int
    layout: str
    why: str
    restored: str
    parts_us: dict[str, int | None]

    @property
    def total_us(self) -> int | None:
        """From the failure to the first step that counted after it, that step included; None where a part is."""
        parts = [self.parts_us[name] for name in PARTS]
        return None if None in parts else sum(part for part in parts if part is not None)


@dataclass(frozen=True)
class Outcome:
    """A training's end. `losses[i]` is step i's mean loss; `digests[i]` tells layer i's bits, on every node alike.

    `replicas_equal`: each layer's weights and optimizer states are the same bits on all its nodes. `nodes`: how many
    trained, generation by generation. `step_us`: of each step that counted, by the first member's clock. `warnings`:
    sentences about what has gone wrong without ending the training, such as a checkpoint that a full disk did not take.
    `resumed`: the step of the checkpoint that it began from, None where it began with the first step.
    """

    losses: tuple[float, ...]
    digests: tuple[str, ...]
    replicas_equal: bool
    nodes: tuple[int, ...]
    recoveries: tuple[Recovery, ...]
    step_us: tuple[int, ...]
    events: tuple[dict[str, object], ...] = field(repr=False)
    warnings: tuple[str, ...] = ()
    resumed: int | None = None

    def median_step_us(self) -> int:
        """Of all steps."""
        return sorted(self.step_us)[len(self.step_us) // 2]
