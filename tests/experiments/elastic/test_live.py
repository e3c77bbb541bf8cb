"""The live line: words for each event on a terminal, silence elsewhere."""

import io

from rich.console import Console

from experiments.elastic.live import Live
from experiments.progress import Stages, stages
from tests.experiments.elastic.events import log


class Heard(Stages):
    """Keeps what would be shown."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.done: list[int] = []
        self.total: int | None = None

    def expect(self, total: int | None) -> None:
        self.total = total

    def reach(self, done: int) -> None:
        self.done.append(done)

    def say(self, what: str) -> None:
        self.words.append(what)


def test_it_tells_steps_nodes_recoveries_joins_and_checkpoints() -> None:
    heard = Heard()
    live = Live(heard, 4, 6)
    for event in [*log(), {"at_s": 4, "event": "checkpoint", "step": 6}]:
        live.see(event)
    assert (heard.total, heard.done) == (6, [1, 2, 3, 4, 5, 6])
    assert heard.words[0] == "4 nodes: 4 processes start"
    assert "4 nodes: trains, loss 2.5000" in heard.words
    assert "4 nodes: node 1 has ended (signal 9): regroups" in heard.words
    assert "3 nodes: moves 1 layer, plan layout 2" in heard.words
    assert "2 nodes, 1 recovery: lets processes in" in heard.words
    assert heard.words[-1].startswith("3 nodes, 1 recovery, 1 join, 1 checkpoint: ")


def test_a_file_is_told_nothing_and_a_terminal_is() -> None:
    for terminal in (False, True):
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=120)
        with stages(6, console) as shown:
            live = Live(shown, 4, 6)
            for event in log():
                live.see(event)
        assert ("recovery" in out.getvalue()) is terminal
        assert terminal or out.getvalue() == ""
