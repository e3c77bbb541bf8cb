"""What a training whose processes fail is doing right now: steps, nodes, recoveries and checkpoints, in a live line."""

from collections.abc import Mapping
from typing import Any

from experiments.progress import Stages


class Live:
    """Turns events into the line's words; `see` is a watcher of `runtime.elastic`, and waits for nothing."""

    def __init__(self, shown: Stages, nodes: int, steps: int) -> None:
        self._shown, self._nodes, self._steps = shown, nodes, steps
        self._recoveries = self._joins = self._checkpoints = 0
        self._now = f"{nodes} processes start"
        self._joining = False
        shown.expect(steps)
        self._say()

    def see(self, event: Mapping[str, Any]) -> None:
        """One more event."""
        match event["event"]:
            case "step":
                self._now, self._nodes = f"trains, loss {event['loss']:.4f}", event["nodes"]
                self._shown.reach(event["step"] + 1)
            case "hung":
                self._now = event["why"]
            case "lost":
                self._joining = not event["why"]
                self._now = f"{event['why']}: regroups" if event["why"] else "lets processes in"
            case "generation":
                self._nodes = len(event["nodes"])
                moved = event["moved"]
                self._now = f"moves {moved} layer{'s' * (moved != 1)}, plan {event['layout']}"
            case "recovered":
                self._joins += self._joining
                self._recoveries += not self._joining
            case "checkpoint":
                self._checkpoints += 1
            case _:
                return
        self._say()

    def _say(self) -> None:
        counts = ((self._recoveries, "recovery", "recoveries"), (self._joins, "join", "joins"))
        told = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
        if self._checkpoints:
            told.append(f"{self._checkpoints} checkpoint{'s' * (self._checkpoints > 1)}")
        self._shown.say(", ".join([f"{self._nodes} nodes", *told]) + f": {self._now}")
