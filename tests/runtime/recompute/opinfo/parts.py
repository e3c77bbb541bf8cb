"""A sweep in equal parts, each kept when it has run: one that was interrupted goes on where it was."""

import dataclasses
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from tests.runtime.recompute.opinfo.sweep import Plan, Tally, programs, sweep


def sweep_in_parts(plan: Plan, device: str, parts: int, folder: Path, asked: dict[str, Any]) -> tuple[Tally, float]:
    """What the parts found together, and the seconds that they took, those of earlier runs included.

    Raises ValueError where a part in the folder belongs to another question than `asked`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    total, seconds = Tally(), 0.0
    for number in range(parts):
        path = folder / f"{device}-{number}-of-{parts}.json"
        if not path.exists():
            _run(dataclasses.replace(plan, shard=(number, parts)), device, path, asked)
        kept = json.loads(path.read_text())
        if kept["asked"] != asked:
            raise ValueError(f"{path} was made for {kept['asked']}, not for {asked}: give another folder")
        add(total, kept["found"])
        seconds += kept["seconds"]
    return total, seconds


def _run(plan: Plan, device: str, path: Path, asked: dict[str, Any]) -> None:
    began = os.times().user
    found = plain(sweep(programs(plan), device))
    kept = {"asked": asked, "seconds": os.times().user - began, "found": found}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(kept))
    fresh.replace(path)


def plain(tally: Tally) -> dict[str, Any]:
    """What was counted, as JSON has it."""
    return {
        field.name: {key: dict(value) if isinstance(value, dict) else value for key, value in counted.items()}
        for field in dataclasses.fields(tally)
        for counted in [getattr(tally, field.name)]
    }


def add(total: Tally, found: dict[str, Any]) -> None:
    """Adds what `plain` made of another tally."""
    for name, counted in found.items():
        own = getattr(total, name)
        if isinstance(own, Counter) or name == "different":
            own.update(counted)
        else:
            for reason, who in counted.items():
                own[reason].update(who)
