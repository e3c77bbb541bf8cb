"""Tiny compute functions, and entries around them."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from experiments.reproduction import OUT_OF_MEMORY, Cells, Result, Series, scalar
from solvers.engines import search
from solvers.ir.errors import InvalidInput

HERE = "tests.experiments.reproduction.fakes"


def squares(cells: Cells, *, upto: int, log: str = "") -> Result:
    """The squares of 0…upto−1, each a cell that leaves a line in `log`; their sum."""
    cells.total(upto)
    points = {f"n {number}": cells.get({"n": number}, _square, number, log) for number in range(upto)}
    total = scalar("sum", "", sum(value for value in points.values() if value is not None))
    return Result(
        series=(Series(name="squares", unit="m²", points=points), total, scalar("count", "", upto)),
        notes=("Worked out by hand.",),
    )


def _square(number: int, log: str) -> float:
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{number}\n")
    return float(number * number)


def stumbling(cells: Cells, *, marker: str) -> Result:
    """Cells of which one fails until `marker` exists, one runs out of memory, and one has a bug."""
    points = {name: cells.get({"cell": name}, _stumble, name, marker) for name in ("a", "b", "c", "d")}
    return Result(series=(Series(name="values", unit="s", points=points),))


def _stumble(name: str, marker: str) -> float | str:
    if name == "b" and not Path(marker).exists():
        raise InvalidInput("b is 0, below 1: raise it")
    if name == "d" and not Path(marker).exists():
        raise ZeroDivisionError("division by\nzero")
    return OUT_OF_MEMORY if name == "c" else 1.0


def interrupted(cells: Cells, *, marker: str, swallow: bool = False) -> Result:
    """Three cells; the second sends itself a Ctrl-C until `marker` exists, and may take it for a wish to end early."""
    points = {f"n {number}": cells.get({"n": number}, _stop, number, marker, swallow) for number in range(3)}
    return Result(series=(Series(name="values", unit="s", points=points),))


def _stop(number: int, marker: str, swallow: bool) -> float:
    if number == 1 and not Path(marker).exists():
        Path(marker).touch()
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            if not swallow:
                raise
            return -1.0  # the best so far
    return float(number)


def slow(cells: Cells, *, log: str, marker: str) -> Result:
    """Three cells, each with a line in `log`; the second lasts a minute unless `marker` exists."""
    points = {str(number): cells.get({"n": number}, _slow, number, log, marker) for number in range(3)}
    return Result(series=(Series(name="values", unit="s", points=points),))


def _slow(number: int, log: str, marker: str) -> float:
    _square(number, log)
    if number == 1 and not Path(marker).exists():
        time.sleep(60)
    return float(number)


def broken(cells: Cells) -> Result:
    """Fails outside of any cell."""
    raise RuntimeError("no cell was reached")


def nothing(cells: Cells) -> dict[str, float]:
    """Returns something else."""
    return {}


def inputs(cells: Cells, *, machine: str, model: str) -> Result:
    """Reads what it is told to read."""
    memory = cells.hardware(machine).device().memory_bytes
    return Result(series=(scalar("memory", "B", float(memory)), scalar("layers", "", float(cells.shape(model).layers))))


def follower(cells: Cells) -> Result:
    """Depends on a room of solvers."""
    return Result(series=(scalar("callable", "", float(callable(search.follow))),))


def squares_entry(**changes: Any) -> dict[str, Any]:
    """An entry about `squares`: one value reproduced, one that differs, one range, one shape."""
    quantities = [
        {"name": "largest", "place": "§1", "unit": "m²", "of": "squares", "take": "max", "paper": {"value": 4}},
        {
            "name": "sum",
            "place": "Table 1",
            "unit": "",
            "of": "sum",
            "paper": {"value": 10},
            "because": "They cannot add",
        },
        {"name": "all", "place": "§2", "unit": "m²", "of": "squares", "take": "range", "paper": {"low": -1, "high": 5}},
        {"name": "sixth", "place": "Figure 1", "unit": "m²", "of": "squares", "where": "n 2", "unreadable": "an image"},
    ]
    shapes = [{"check": "monotone", "claim": "squares rise", "place": "§3", "of": "squares", "direction": "rising"}]
    known: dict[str, Any] = {"system": "school", "title": "Squares", "place": "Figure 1", "how": "arithmetic"}
    known |= {"compute": f"{HERE}:squares", "parameters": {"upto": 3}, "fitted": [], "assumptions": ["n is whole"]}
    return {**known, "quantities": quantities, "shapes": shapes, **changes}


def value_entry(function: str, series: str, take: str = "only", **changes: Any) -> dict[str, Any]:
    """An entry with one quantity without a claim."""
    quantity = {"name": "ours", "place": "§1", "unit": "", "of": series, "take": take, "unreadable": "an image"}
    return squares_entry(compute=f"{HERE}:{function}", quantities=[quantity], shapes=[], **changes)


def write_entry(folder: Path, name: str, raw: dict[str, Any]) -> None:
    """The entry as a file of `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(OmegaConf.create(raw), folder / f"{name}.yaml")
