"""Builds the five native extensions; everything else about the distribution stands in pyproject.toml.

`solvers.joint._annealing` (the joint planner's search), `solvers.replan.exact._filling` (what stages can hold) and
`solvers.swap._issuing` (when swap-ins are issued) need pybind11's headers, which torch brings, and no torch to run.
`runtime._C` (profiler, tensor matcher, swap guard) is device-neutral. `runtime._sim` (the simulated accelerator) uses
PyTorch's backend interface, which moves between releases, so it is built for one torch release only.

The environment variable BAYPLAN_NATIVE says what a machine without a compiler means: unset, an install without the
extensions and a sentence; `require`, a failed build. `skip` builds nothing, compiler or not. A compile error is never
hidden.

Most of the time of a compiler goes into torch's headers, which every source reads. So sources of one folder are
compiled some at a time, as one; `BAYPLAN_APART=1` compiles each by itself, which is quicker where one is changed often.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from setuptools import Command, Extension, setup

ROOT = Path(__file__).resolve().parent
SIM_TORCH = "2.13"  # The release that csrc/sim was written for and tested on.
NATIVE = os.environ.get("BAYPLAN_NATIVE", "")
APART = os.environ.get("BAYPLAN_APART", "") not in {"", "0"}
TOGETHER = 7  # So many sources are compiled as one: a unit takes some 20 s, ten of one source each would take 80.


def say(sentence: str) -> None:
    """Prints one line where neither pip nor make swallows it."""
    print(f"bayplan: {sentence}", file=sys.stderr, flush=True)


def put_ninja_on_path() -> None:
    """Makes the ninja of this environment findable even if the environment was not activated."""
    bin_dir = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([bin_dir, os.environ.get("PATH", "")])


def missing_compiler() -> str | None:
    """Returns the name of the C++ compiler that the build would call and that is not there, else None."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))[0]
    return None if shutil.which(compiler) else compiler


def sources(bindings: str, *folders: str) -> list[str]:
    """Returns the sources of one extension, relative to the root; none where its bindings are not written yet."""
    if not (ROOT / bindings).exists():
        return []
    found = [path for folder in folders for path in (ROOT / "csrc" / folder).glob("*.cpp")]
    return [bindings, *sorted(str(path.relative_to(ROOT)) for path in found)]


def united(files: list[str], folder: Path) -> list[str]:
    """Returns sources that include those of the same folder, some at a time; written only where they differ."""
    folder.mkdir(parents=True, exist_ok=True)
    apart: dict[str, list[str]] = {}
    for file in files:
        apart.setdefault(Path(file).parent.name, []).append(file)
    units = []
    for name, members in apart.items():
        for begin in range(0, len(members), TOGETHER):
            unit = folder / f"{name}_{begin // TOGETHER}.cpp"
            included = [Path(member).relative_to("csrc").as_posix() for member in members[begin : begin + TOGETHER]]
            text = "".join(f'#include "{member}"\n' for member in included)
            if not unit.exists() or unit.read_text() != text:
                unit.write_text(text)
            units.append(str(unit))
    return units


def extensions() -> list[Extension]:
    """Lists what can be built for the torch of this environment."""
    import torch
    from torch.utils.cpp_extension import CppExtension, include_paths

    folders = ("profiler", "storage", "follow", "step", "session", "recompute")
    wanted = {"runtime._C": sources("csrc/bindings.cpp", *folders)}
    if torch.__version__.startswith(f"{SIM_TORCH}."):
        wanted["runtime._sim"] = sources("csrc/bindings_sim.cpp", "sim")
    else:
        say(
            f"runtime._sim is skipped: the simulated accelerator is written for torch {SIM_TORCH}, "
            f"this is torch {torch.__version__}."
        )
    # The C++ standard is left to torch's own flags: it differs between the releases that runtime._C supports.
    flags = [
        "-O2",
        "-g0",
        "-DNDEBUG",
        "-Wall",
        "-Wno-interference-size",  # torch's own headers, in every file
        "-fvisibility=hidden",
        f'-DBAYPLAN_TORCH_VERSION="{torch.__version__}"',
    ]
    common: dict[str, Any] = {"extra_compile_args": flags, "depends": ["setup.py"]}
    without_torch = [
        Extension(
            name,
            sources(f"csrc/bindings_{folder}.cpp", folder),
            include_dirs=[str(ROOT / "csrc"), *include_paths()],
            language="c++",
            **common,
        )
        for name, folder in (
            ("solvers.joint._annealing", "joint"),
            ("solvers.replan.exact._filling", "replan"),
            ("solvers.swap._issuing", "swap"),
        )
    ]
    with_torch = [
        CppExtension(name, files, include_dirs=[str(ROOT / "csrc")], **common)
        for name, files in wanted.items()
        if files
    ]
    return [*without_torch, *with_torch]


def build_extension_command() -> type[Command]:
    """Returns torch's build command, with a build folder for each extension."""
    from torch.utils.cpp_extension import BuildExtension

    class BuildNative(BuildExtension):
        """In one folder the extensions would overwrite each other's ninja file, and rebuild all each time."""

        def build_extension(self, ext: Extension) -> None:
            shared = self.build_temp
            self.build_temp = str(Path(shared) / ext.name)
            if not APART:
                ext.sources = united(ext.sources, Path(self.build_temp) / "units")
            try:
                super().build_extension(ext)
            finally:
                self.build_temp = shared

    return BuildNative


def native() -> dict[str, Any]:
    """Returns the part of setup()'s arguments that concerns the extensions."""
    if NATIVE not in {"", "require", "skip"}:
        sys.exit(f"bayplan: BAYPLAN_NATIVE={NATIVE!r} is unknown: leave it unset or use require or skip.")
    if NATIVE == "skip":
        return {}
    compiler = missing_compiler()
    if compiler and NATIVE == "require":
        sys.exit(f"bayplan: no C++ compiler {compiler!r}, but BAYPLAN_NATIVE=require: install g++ or set CXX.")
    if compiler:
        say(
            f"no C++ compiler {compiler!r}: installed without native extensions; "
            "install g++ or set CXX, then run `make build`."
        )
        return {}
    put_ninja_on_path()
    return {"ext_modules": extensions(), "cmdclass": {"build_ext": build_extension_command()}}


setup(**native())
