"""What the sweep found as a page and as a file."""

import json
from pathlib import Path
from typing import Any

from tests.runtime.recompute.opinfo.sweep import Tally


def document(tallies: dict[str, Tally], provenance: dict[str, Any]) -> dict[str, Any]:
    """Everything that the sweeps of several devices found, as plain values."""
    return {**provenance, "devices": {device: _counts(tally) for device, tally in tallies.items()}}


def _counts(tally: Tally) -> dict[str, Any]:
    return {
        "operators and modules": len(tally.tried),
        "programs": tally.tried.total(),
        "equal": tally.equal.total(),
        "equal, and something ran again": tally.replayed.total(),
        "refused with and without a tape": tally.refused_by_both.total(),
        "plain training does not repeat": dict(tally.not_repeated),
        "refused with a tape alone": {sentence: dict(who) for sentence, who in sorted(tally.refused.items())},
        "different": tally.different,
        "stored, by reason": {reason: dict(who) for reason, who in sorted(tally.stored.items())},
    }


def page(found: dict[str, Any]) -> str:
    """The same as Markdown."""
    devices: dict[str, dict[str, Any]] = found["devices"]
    lines = [
        "# PyTorch's own samples on a tape that stores nothing",
        "",
        "Each program is one operator with a derivative, or one module, on one of PyTorch's samples",
        "(`torch.testing._internal`, `op_db` and `module_db`), and the square of each of its results, so that the",
        "backward pass needs the result and nobody holds it: the tape runs it again. Without a tape it runs",
        "once, and again where it differs.",
        "*Equal*: results, gradients, buffers, states of generators and everything that lay in the inputs' memory have",
        "the same bytes, and plain training repeats them.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in found.items() if not isinstance(value, dict)),
        "",
        "| | " + " | ".join(devices) + " |",
        "|---|" + "---:|" * len(devices),
    ]
    names = list(next(iter(devices.values())))
    for name in names:
        lines.append(f"| {name} | " + " | ".join(_number(counts[name]) for counts in devices.values()) + " |")
    for device, counts in devices.items():
        for name in names:
            if isinstance(counts[name], dict) and counts[name]:
                lines += [
                    "",
                    f"On {device}, {name}:",
                    "",
                    *(f"- {key}: {_told(value)}" for key, value in counts[name].items()),
                ]
    return "\n".join(lines) + "\n"


def _number(value: Any) -> str:
    if not isinstance(value, dict):
        return f"{value:,}"
    return f"{sum(map(_count, value.values())):,}"


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(value.values())
    return value if isinstance(value, int) else 1


def _told(value: Any) -> str:
    return (
        ", ".join(f"`{name}` {count}" for name, count in sorted(value.items()))
        if isinstance(value, dict)
        else str(value)
    )


def write(found: dict[str, Any], folder: Path) -> None:
    """Writes README.md and sweep.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(page(found))
    (folder / "sweep.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
