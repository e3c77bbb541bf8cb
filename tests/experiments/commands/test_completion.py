"""Shell completion: click's of commands and options, Hydra's of settings, and nothing heavy where a name is enough."""

import pytest

from experiments.command_line import bayplan
from experiments.commands.completion import complete
from tests.experiments.commands.console import call, refused


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash is offered for the last word of a line, which bash itself splits at `=`."""
    words = line.replace("=", " = ").split(" ")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len([word for word in words if word]) - 1 + line.endswith(" ")))
    capsys.readouterr()
    complete(bayplan, "bash_complete")
    return [offer.partition(",")[2] for offer in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    outcome = call("completion", shell)
    assert outcome.code == 0 and f"_BAYPLAN_COMPLETE={shell}_complete" in outcome.out
    assert "invalid value" in refused(call("completion", "powershell"))


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("bayplan comp", ["compare", "completion"]),
        ("bayplan make joi", ["joint"]),
        ("bayplan make swap --hardware sim-s", ["sim-small"]),
        ("bayplan make swap --shape gpt-1.", ["gpt-1.3b"]),
        ("bayplan solve p.json --solver greedy-s", ["greedy-swap"]),
        ("bayplan table lynx-figure-10", ["lynx-figure-10a", "lynx-figure-10b"]),
        ("bayplan table al", ["all"]),
        ("bayplan make --host-b", ["--host-budget", "--host-bytes"]),
        ("bayplan compare experiment=lynx_s", ["lynx_sweep"]),
        ("bayplan compare experiment=lynx microb", ["microbatch=", "microbatches="]),
        ("bayplan train experiment=stability validation_", ["validation_batches="]),
        ("bayplan nothing ", []),
    ],
)
def test_words_are_completed(
    line: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(line, monkeypatch, capsys) == offered
