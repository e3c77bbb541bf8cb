"""The race on this machine's device, written to a file after each way; a second run adds its settings to the file.

python3 -m experiments.gpu.race OUT.json [--device sim] [--few] [--seconds 70]
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from experiments.bench.figure import row as line
from experiments.bench.offload.figures import figure_of
from experiments.bench.offload.model import CUDA_SHAPES, SIM_SHAPES, RaceShape
from experiments.bench.offload.planned import Plans
from experiments.bench.offload.race import race
from experiments.bench.offload.run import Ran, Way
from experiments.bench.offload.ways import PLAIN, few, ways
from experiments.commands.outputs import writable
from experiments.gpu.steps import EXPANDABLE
from experiments.refusals import refusing
from runtime.device import CachingAllocator, accelerator
from solvers.ir.errors import InvalidInput
from solvers.ir.solution import Limits

FORMAT = "bayplan-race/1"
ON_SIM = "sim, modelled time, allocator caching"
SOLVING_S = 3.0
"""Seconds for each plan: there are up to seven, and nine minutes for everything."""


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Race every shape; 1 where even the plain run failed, or a way computed other losses."""
    parser = argparse.ArgumentParser(prog="experiments.gpu.race")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("cuda", "sim"), default="cuda")
    parser.add_argument("--few", action="store_true", help="the plain run; joint, a session and a swap plan at 60%%")
    parser.add_argument("--shape", help="only this one, such as '24 x 2048'")
    parser.add_argument("--way", action="append", default=[], help="beside the plain run only this one; repeatable")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no way is begun after that")
    given = parser.parse_args(arguments)
    writable(given.out, "OUT")
    until = time.monotonic() + given.seconds
    device = accelerator(given.device)
    if not given.seconds > 0:
        raise InvalidInput(f"--seconds is {given.seconds}: give more than 0, as in --seconds 70")
    shapes = _shapes(given.device, given.shape)[: 1 if given.few else None]
    racing = [_racing(given.way, shape, only_few=given.few) for shape in shapes]
    with repeatable(device):
        good = []
        for left in range(len(shapes), 0, -1):  # time that one shape leaves is the next ones', none's own is taken
            now = time.monotonic()
            share = now + (until - now) / left
            good.append(run_shape(given.out, device, shapes[-left], share, racing[-left]))
    return 0 if all(good) else 1


def _racing(names: Sequence[str], shape: RaceShape, *, only_few: bool) -> list[Way]:
    """The plain run and those that are asked for, in their order; raises `InvalidInput` for a name of none."""
    known = {way.name: way for way in ways(shape.shares)}
    for name in names:
        if name not in known:
            raise InvalidInput(
                f"--way {name!r} is no way to race with {shape.name}: choose of {'; '.join(known)}, and name the shape "
                f"by --shape where another has other budgets"
            )
    if names and only_few:
        raise InvalidInput("--few and --way both say who races: give one of them")
    if names:
        return [PLAIN, *(known[name] for name in dict.fromkeys(names) if name != PLAIN.name)]
    return few(shape.shares) if only_few else list(known.values())


def _shapes(device: str, name: str | None) -> tuple[RaceShape, ...]:
    """All of a device's, or the one of that name; raises `InvalidInput` where it has none such."""
    shapes = CUDA_SHAPES if device == "cuda" else SIM_SHAPES
    found = tuple(shape for shape in shapes if name in (None, shape.name))
    if not found:
        raise InvalidInput(
            f"--shape {name!r} is not raced on {device}: choose of {'; '.join(one.name for one in shapes)}"
        )
    return found


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Kernels whose results are those of the run before, as far as there are; afterwards all is as it was.

    Of attention's kernels only flash attention's backward pass has such a way, and takes it where a kernel that has
    none raises, rather than warns: where the model has one, the race goes on with warnings.
    """
    cuda, module = torch.backends.cuda, torch.utils.deterministic
    strict = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with ExitStack() as stack:
        stack.callback(torch.use_deterministic_algorithms, strict[0], warn_only=strict[1])
        for name in ("cudnn_sdp", "mem_efficient_sdp"):
            stack.callback(getattr(cuda, f"enable_{name}"), getattr(cuda, f"{name}_enabled")())
            getattr(cuda, f"enable_{name}")(False)
        stack.callback(setattr, module, "fill_uninitialized_memory", getattr(module, "fill_uninitialized_memory"))  # noqa: B009
        setattr(module, "fill_uninitialized_memory", False)  # noqa: B010 - a kernel more for each `empty`, else nobody's
        torch.use_deterministic_algorithms(True)
        try:
            RaceShape(layers=1, width=64, heads=1, context=64, batch=1).build(device).step()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            print(f"some kernels have no deterministic way: {str(error).partition(chr(10))[0]}", flush=True)
            torch.use_deterministic_algorithms(True, warn_only=True)
        yield


def _known(out: Path) -> list[dict[str, Any]]:
    """The races that the file holds already; raises `InvalidInput` where it is no such file."""
    if not out.is_file():
        return []
    try:
        raw = json.loads(out.read_text(encoding="utf-8"))
        if raw["format"] != FORMAT or not isinstance(raw["races"], list):
            raise ValueError(f"format {raw['format']!r}, races of {type(raw['races']).__name__}")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{out} is no file of races ({error}): remove it, or name another one") from error
    races: list[dict[str, Any]] = raw["races"]
    return races


def run_shape(out: Path, device: torch.device, shape: RaceShape, until: float, racing: Sequence[Way]) -> bool:
    """One race, added to the file; whether the plain run trained and all that trained computed the same."""
    known = _known(out)
    rows: list[Ran] = []
    conf = os.environ.get("PYTORCH_ALLOC_CONF", "")
    segments = CachingAllocator(expandable_segments=EXPANDABLE in conf) if device.type == "sim" else None

    def tell(row: Ran) -> None:
        rows.append(row)
        told = {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else ON_SIM,
            "torch": torch.__version__,
            "allocator": conf,
            "shape": {name: one for name, one in asdict(shape).items() if name != "shares"},
            "rows": [one.raw() for one in rows],
        }
        out.write_text(json.dumps({"format": FORMAT, "races": [*known, told]}, indent=1) + "\n", encoding="utf-8")
        print("  ".join(line(figure_of(row, rows[0], f"{shape.name}, {row.way}", device.type))), flush=True)

    race(device.type, shape, racing, Plans(limits=Limits(time_s=SOLVING_S)), tell, until, segments)
    return rows[0].error is None and all(row.equals(rows[0]) for row in rows if row.error is None)


if __name__ == "__main__":
    sys.exit(main())
