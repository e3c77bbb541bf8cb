"""A sweep's tally as a page and as a file."""

import json
from pathlib import Path
from typing import Any

from tests.csrc.sim.opinfo.sweep import Tally


def document(tally: Tally, provenance: dict[str, Any]) -> dict[str, Any]:
    """Everything that a sweep found, as plain values."""
    return {
        **provenance,
        "operators": len(tally.operators),
        "samples": len(tally.samples),
        "programs": {
            "tried": dict(tally.tried),
            "equal": dict(tally.equal),
            "refused by both": dict(tally.refused_by_both),
            "refused by sim": sum(sum(operators.values()) for operators in tally.refused.values()),
            "different": len(tally.different),
        },
        "refused": {sentence: dict(operators) for sentence, operators in sorted(tally.refused.items())},
        "different": tally.different,
    }


def page(found: dict[str, Any]) -> str:
    """The same as Markdown."""
    programs = found["programs"]
    lines = [
        "# PyTorch's own samples on device sim",
        "",
        "Each program calls one operator or module on one of PyTorch's samples (`torch.testing._internal`, `op_db` and",
        "`module_db`), on the CPU and on sim, from the same seed. *Equal*: results, gradients, buffers and everything",
        "that lay in the inputs' memory have the same bytes, shapes, strides, types, laziness and sharing of memory.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {_cell(value)} |" for name, value in found.items() if not isinstance(value, dict)),
        "",
        "| way | tried | equal | refused by both | refused by sim alone, or different |",
        "|---|---:|---:|---:|---:|",
    ]
    for way, tried in programs["tried"].items():
        equal, both = programs["equal"].get(way, 0), programs["refused by both"].get(way, 0)
        lines.append(f"| {way} | {tried:,} | {equal:,} | {both:,} | {tried - equal - both:,} |")
    all_tried, all_equal = sum(programs["tried"].values()), sum(programs["equal"].values())
    both = sum(programs["refused by both"].values())
    lines.append(f"| all | {all_tried:,} | {all_equal:,} | {both:,} | {all_tried - all_equal - both:,} |")
    lines += ["", f"**Different: {programs['different']}.** Refused by sim alone: {programs['refused by sim']}", ""]
    if found["refused"]:
        lines += ["| programs | refused by sim with | operators |", "|---:|---|---|"]
    for sentence, operators in found["refused"].items():
        lines.append(f"| {sum(operators.values())} | {sentence} | {', '.join(sorted(operators))} |")
    lines += [f"- {program}: {told}" for program, told in found["different"].items()]
    return "\n".join(lines).rstrip() + "\n"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def write(found: dict[str, Any], folder: Path) -> None:
    """Writes README.md and sweep.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(page(found))
    (folder / "sweep.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
