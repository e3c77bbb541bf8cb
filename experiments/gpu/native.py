"""Has `runtime._C` on this machine: as it is, from a carried build, or compiled here; standard library only."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEAST_SETUPTOOLS = 77
"""Older ones refuse pyproject.toml, which states the licence as today's do."""
TRY = """
from runtime.device.native import core, release
import torch
listens = core.listen_to_cuda() if torch.cuda.is_available() else "no CUDA"
print(f"runtime._C of torch {core.torch_version} under {torch.__version__}; hears CUDA's allocator: {listens}")
"""


def said() -> str | None:
    """What the extension says, None where it does not load."""
    done = subprocess.run([sys.executable, "-c", TRY], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        print((done.stderr.strip().splitlines() or ["no word"])[-1])
        return None
    return done.stdout.strip()


def carried(wheels: Path) -> Path | None:
    """A build for this Python that came along with the wheels."""
    found = wheels / f"_C.{sysconfig.get_config_var('SOABI')}.so"
    return found if found.is_file() else None


def cannot_build() -> str | None:
    """Why this Python could not compile it, None where it could."""
    try:
        found = version("setuptools")
    except PackageNotFoundError:
        found = "0"
    if int(found.split(".")[0]) >= LEAST_SETUPTOOLS:
        return None
    wrong = "setuptools is not installed" if found == "0" else f"setuptools {found} is too old"
    return f"{wrong}: install {LEAST_SETUPTOOLS} or newer, or carry a build (experiments/gpu/README.md)"


def build() -> int:
    """Compile on all cores; the exit code."""
    environment = {"MAX_JOBS": str(os.cpu_count() or 1), **os.environ, "BAYPLAN_NATIVE": "require"}
    return subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=ROOT, env=environment).returncode


def main(wheels: Path) -> int:
    """0 where the extension loads in the end."""
    found = said()
    if found is None and (build_of := carried(wheels)) is not None:
        print(f"a carried build: {build_of.name}")
        shutil.copy(build_of, ROOT / "runtime")
        found = said()
    if found is None and (lacking := cannot_build()) is not None:
        print(f"runtime._C does not load, and cannot be built: {lacking}")
        return 1
    if found is None and build() == 0:
        found = said()
    print(found or "runtime._C neither loads nor builds: see above")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
