"""`python -m experiments.joint --out FOLDER`: a row a case as they come, then the page of all that are there."""

import json
import sys
from pathlib import Path

import click

from experiments.command_line import run
from experiments.joint.cases import CASES, FAMILIES
from experiments.joint.page import page
from experiments.joint.study import answered

TOLD = ("swap", "recompute", "greedy", "joint", "bound")
WORK = 0.1
"""What each planner gets: five to twenty seconds of a processor for `joint` on these cases."""
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command("joint")
@click.option("--out", required=True, type=FOLDER, help="Where cases.jsonl and cases.md lie; known cases are kept.")
@click.option("--work", type=click.FloatRange(0, min_open=True), default=WORK, show_default=True, help="Of a planner.")
@click.option("--most", type=click.IntRange(0), help="New cases at most.  [default: all]")
def command(out: Path, work: float, most: int | None) -> int:
    """Plan every case that the folder does not know yet, and write the page of all."""
    kept = out / "cases.jsonl"
    rows = [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept.is_file() else []
    known = {row["case"] for row in rows}
    out.mkdir(parents=True, exist_ok=True)
    for case in [case for case in CASES if case.name not in known][:most]:
        rows.append(answered(case, work))
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[-1], ensure_ascii=False, separators=(",", ":")) + "\n")
        click.echo(f"{case.name}: " + ", ".join(f"{key} {rows[-1][key]}" for key in TOLD))
    if rows:
        families = list(FAMILIES.values())
        rows.sort(key=lambda row: (families.index(row["family"]), row["case"]))
        (out / "cases.md").write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run(command, "joint", sys.argv[1:]))
