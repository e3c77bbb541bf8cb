"""`make gpu-wheels`: gathers what a GPU machine without an index lacks; on that machine, unpacks it. Standard library.

Wheels are for CPython 3.12 on x86-64 Linux, which is what carries torch 2.11 for CUDA there.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES, MOST_TREE_BYTES = 45_000_000, 16_000_000
"""What may be carried, and how large the tracked files may be that travel with it."""
PYTHON = ("--python-version", "3.12", "--implementation", "cp", "--abi", "cp312", "--abi", "abi3", "--abi", "none")
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)), "manylinux2014_x86_64", "any")
BINARY = (
    *("msgspec", "hydra-core", "omegaconf", "simpy", "immutabledict", "highspy", "ortools", "ninja", "trl"),
    *("pytest", "iniconfig", "pluggy", "packaging", "pygments", "hypothesis", "sortedcontainers"),
    *("click", "rich", "markdown-it-py", "mdurl"),
)
"""What such a machine lacks or may lack, with what it imports: the optimizers' engines, tests, the command line."""
MODULES = {"hydra-core": "hydra", "markdown-it-py": "markdown_it"}
"""What is imported of a wheel, where its name tells another."""
SOURCE = ("antlr4-python3-runtime==4.9.3",)
"""What has no wheel on the index: pure Python, made into one here."""


def carried() -> frozenset[str]:
    """The modules that can be carried."""
    return frozenset(MODULES.get(name, name) for name in BINARY)


def gather(folder: Path) -> int:
    """Download everything and say its size; 1 where it is too large to be carried."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.whl"):
        path.unlink()  # two versions of one module would stop the whole install
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    download = [*pip, "download", "-q", "--no-deps", "--only-binary", ":all:", *PYTHON, *platforms]
    constraints = ["-c", str(ROOT / "constraints.txt")] if (ROOT / "constraints.txt").is_file() else []
    code = subprocess.run([*download, *constraints, "-d", str(folder), *BINARY]).returncode
    made = [*pip, "wheel", "-q", "--no-deps", "-w", str(folder), *SOURCE]
    code = code or subprocess.run(made).returncode
    if code != 0:
        print(f"pip ended with {code}: see above")
        return 1
    return told(folder, _tree_bytes())


def told(folder: Path, tree_bytes: int) -> int:
    """Print the sizes; 1 where they exceed what may be carried."""
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_size)
    for path in files:
        print(f"  {path.stat().st_size / 1e6:6.2f} MB  {path.name}")
    carried = sum(path.stat().st_size for path in files)
    print(f"{carried / 1e6:.1f} MB of at most {MOST_BYTES / 1e6:.0f} in {folder.name}")
    print(f"{tree_bytes / 1e6:.1f} MB of at most {MOST_TREE_BYTES / 1e6:.0f} in tracked files, which travel too")
    if carried > MOST_BYTES or tree_bytes > MOST_TREE_BYTES:
        print("that is too large to be carried: leave out the largest wheels, whose steps then say what they lack")
        return 1
    return 0


def _tree_bytes() -> int:
    """What git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return sum(os.lstat(path).st_size for path in paths if path.is_file())


def install(folder: Path, site: Path) -> int:
    """Unpack the wheels that fit this Python, without an index; 0 also where there is nothing to unpack."""
    wheels = [str(path) for path in sorted(folder.glob("*.whl")) if fits(path.name, sys.version_info[:2])]
    if not wheels:
        print(f"there are no wheels for this Python in {folder.name}: what is not installed here stays missing")
        return 0
    options = ("--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--upgrade", "--target", str(site))
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PIP_CACHE_DIR": cache, "PYTHONPATH": ""}
        words = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *options, *wheels]
        code = subprocess.run(words, env=environment).returncode
    print(f"{len(wheels)} wheels unpacked" if code == 0 else f"pip ended with {code}: see above")
    return code


def fits(name: str, version: tuple[int, ...]) -> bool:
    """Whether a wheel of that name is for this CPython: by its tag, a stable interface as old or older, or pure."""
    python, abi = name.removesuffix(".whl").split("-")[-3:-1]
    if abi == "none":
        return "py3" in python.split(".")
    tags = [(int(tag[2]), int(tag[3:])) for tag in python.split(".") if tag.startswith("cp")]
    return any(tag == version[:2] or (abi == "abi3" and tag <= version[:2]) for tag in tags)


def main(words: Sequence[str]) -> int:
    """`gather FOLDER` or `install FOLDER SITE`."""
    if words[:1] == ["gather"] and len(words) == 2:
        return gather(Path(words[1]))
    if words[:1] == ["install"] and len(words) == 3:
        return install(Path(words[1]), Path(words[2]))
    print("give gather FOLDER, or install FOLDER SITE", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
