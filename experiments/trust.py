"""What a configuration may name to be run: the project's own parts and Hydra's plugins, nothing else."""

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from omegaconf import MISSING, Container, DictConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError

from solvers.ir import InvalidInput
from solvers.ir.names import unknown

TARGET = "_target_"
SEARCH_PATH = "hydra.searchpath"
FILES = "file://"
SAMPLERS = "optuna.samplers."
"""Where a sampler of the optuna sweeper comes from."""
LOGGING = re.compile(r"logging(\.handlers)?\.[A-Z]\w*")
"""Python's own handlers, formatters and filters."""
IMPORTED = ("()", "factory", "queue", "listener")
"""Keys under which Python's logging calls what it is given by name."""
RESOLVED = ("launcher", "sweeper", "job_logging", "hydra_logging")
"""Nodes that Hydra resolves and then instantiates."""
PLAIN = re.compile(r"\$\{(now:[^${}]*|oc\.env:\w+(,[^${}]*)?|hydra:[\w.]+|\w[\w.]*)\}")
"""The interpolations that may stand there: of the time, the environment, and settings; none in another."""
SHELL = "setup"
"""Where Submitit's launchers take commands for a shell."""
PROCESSES = "experiments.sweeping.processes.Processes"
"""This project's own launcher."""
KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""What a launcher's settings may be called: Submitit writes those of `additional_parameters` into a script."""
SLURMS = "launcher.additional_parameters"
SLURM = (
    "account begin clusters comment constraint contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu "
    "deadline dependency distribution exclude exclusive gpu-bind gpu-freq gpus gpus-per-socket gres gres-flags "
    "hint hold licenses mail-type mail-user mem mem-bind mincpus nice no-kill no-requeue nodelist "
    "ntasks-per-core ntasks-per-gpu ntasks-per-socket overcommit oversubscribe partition power priority qos "
    "reboot requeue reservation sockets-per-node spread-job switches thread-spec threads-per-core time "
    "time-min tmp use-min-nodes wait-all-nodes wckey"
)
"""Flags of sbatch beside Submitit's own; others, as `export` and `chdir`, choose what Python loads in a job."""
ENVIRONMENT = "job.env_set"
HARMLESS = (
    "BAYPLAN_TRACEBACK", "CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES",
    "HYDRA_FULL_ERROR", "KMP_AFFINITY", "KMP_BLOCKTIME", "MKL_NUM_THREADS", "NCCL_DEBUG", "NO_COLOR",
    "NUMEXPR_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES",
    "OPENBLAS_NUM_THREADS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM",
    "TORCH_CPP_LOG_LEVEL", "TQDM_DISABLE", "TQDM_MININTERVAL",
)  # fmt: skip
"""Variables of the environment that name no code and no file: others choose programs, libraries and modules."""
STREAMS = ("ext://sys.stdout", "ext://sys.stderr")
REMEDY = "no configuration runs code of its own choice here: leave it out"


def own_target(node: DictConfig, kind: Any, place: str) -> None:
    """Refuse a `_target_` other than the one that the node's type states; `place` ends in a dot, or is empty."""
    if TARGET not in node or OmegaConf.is_missing(node, TARGET):
        return
    entries = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    stated = {entry.default for entry in entries if entry.name == TARGET}
    if node[TARGET] not in stated:
        raise InvalidInput(f"{place}{TARGET} is {str(node[TARGET])!r}, but {REMEDY}")


def require_trusted(config: DictConfig) -> None:
    """Refuse whatever of Hydra's own settings would import, call or run what the user names."""
    hydra = config.hydra
    if hydra.get("callbacks"):
        raise InvalidInput(f"hydra.callbacks names {', '.join(map(str, hydra.callbacks))}, but {REMEDY}")
    _require_harmless(hydra)
    allowed = {
        "launcher": {*_plugins(Launcher), PROCESSES},
        "sweeper": set(_plugins(Sweeper)),
    }
    for place, written in _values(OmegaConf.to_container(hydra, resolve=False), ""):
        value = _resolved(config, place, written)
        _require_logging(place, value)
        _require_no_shell(place, value)
        name = place.removesuffix(f".{TARGET}")
        if name == place and place != "sweeper.custom_search_space":
            continue
        sampler = name == "sweeper.sampler" and _is_sampler(str(value))
        if value not in (None, MISSING) and not sampler and value not in allowed.get(name, ()):
            raise InvalidInput(f"hydra.{place} is {str(value)!r}, but {REMEDY}")
    launcher = OmegaConf.to_container(hydra.launcher, resolve=False)
    assert isinstance(launcher, dict)
    _require_plain_keys(launcher, "hydra.launcher")
    _require_slurms(launcher.get("additional_parameters"))
    for part in ("launcher", "sweeper"):
        _refuse_unknown(hydra[part], f"hydra.{part}")


def require_plain_search(overrides: Sequence[str]) -> None:
    """Refuse a search path with anything but folders: a package would be imported to be looked at."""
    parse = OverridesParser.create().parse_override
    for word in overrides:
        try:
            override = parse(word)
        except HydraException:  # said where it is composed
            continue
        if override.key_or_group != SEARCH_PATH:
            continue
        value = override.value()
        for entry in map(str, value if isinstance(value, list) else [value]):
            place = Path(entry.removeprefix(FILES))
            if "://" in entry.removeprefix(FILES) or "${" in entry:
                raise InvalidInput(f"{SEARCH_PATH} has {entry!r}, but {REMEDY}, or give a folder as in file:///a/b")
            if not place.is_dir():
                raise InvalidInput(f"{SEARCH_PATH} has {entry!r}, which is no folder: give folders with groups in them")


def _resolved(config: DictConfig, place: str, written: Any) -> Any:
    """What is written there, resolved where Hydra will: it could become a name to import, or a whole part, unseen."""
    if re.split(r"[.\[]", place)[0] not in RESOLVED or "${" not in str(written):
        return written
    node = place in RESOLVED or place.rpartition(".")[2] in (TARGET, "class", *IMPORTED)
    if node or "${" in PLAIN.sub("", written):
        raise InvalidInput(
            f"hydra.{place} is {written!r}, which is resolved too late to judge: write the value, or plain "
            "${now:…}, ${oc.env:…}, ${hydra:…} and ${NAME} of a setting"
        )
    try:
        text = {"value": written.replace("${hydra:", "${hydra.")}
        value = OmegaConf.create(text, parent=config)["value"]
    except InterpolationToMissingValueError:  # Hydra's own of each job, as its number
        return written
    if isinstance(value, Container):
        raise InvalidInput(f"hydra.{place} is {written!r}, which is no single value: write the values themselves")
    return value


def _require_harmless(hydra: DictConfig) -> None:
    """A job's environment: `env_set` may hold harmless variables, and what `env_copy` has copied from this one."""
    raw = OmegaConf.to_container(hydra.job, resolve=False) if not OmegaConf.is_interpolation(hydra, "job") else None
    values = raw.get("env_set") if isinstance(raw, dict) else raw
    if not isinstance(values, dict | None) or raw is None:
        raise InvalidInput(f"hydra.{ENVIRONMENT} is {str(values)!r}, resolved too late to judge: write the variables")
    copied = [*(raw.get("env_copy") or [])] if isinstance(raw, dict) else []
    for name, value in (values or {}).items():
        same = name in copied and value == os.environ.get(name) and "${" not in str(value)
        if name not in HARMLESS and not same:
            raise InvalidInput(
                f"hydra.{ENVIRONMENT}.{name} is {str(value)!r}, but a configuration may only set what names no code "
                f"({', '.join(HARMLESS)}): set it in the shell before the command, where jobs find it"
            )


def _require_no_shell(place: str, value: Any) -> None:
    """Submitit's launchers hand these to a shell: `setup` as it is, other text as lines of a script."""
    if re.match(rf"launcher\.{SHELL}\b", place) and value is not None:
        raise InvalidInput(
            f"hydra.{place} is {str(value)!r}, a command for a shell, but {REMEDY}, and run it before the sweep: jobs "
            "have its environment"
        )
    if place.startswith("launcher.") and _breaks(value):
        raise InvalidInput(f"hydra.{place} holds a line break: write one line")


def _require_plain_keys(node: Any, place: str) -> None:
    """The keys of a launcher's settings, at any depth, as Submitit writes them into a script."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if isinstance(node, dict) and not KEY.fullmatch(str(key)):
            raise InvalidInput(
                f"{place} has a key {str(key)!r}: write letters, digits, '-' and '_' only, beginning with a letter"
            )
        _require_plain_keys(value, f"{place}.{key}")


def _require_slurms(flags: Any) -> None:
    """Submitit writes these flags of sbatch as they are."""
    for flag in flags if isinstance(flags, dict) else ():
        if flag.replace("_", "-") not in SLURM.split():
            raise InvalidInput(
                f"hydra.{SLURMS} has {flag!r}, which is none of the flags that choose no code ({SLURM}): "
                "leave it out, or set SBATCH_… in the shell"
            )


def _breaks(value: Any) -> bool:
    """Whether text has more than one line, whichever of Unicode's breaks is in it."""
    return isinstance(value, str) and value.splitlines() not in ([], [value])


def _refuse_unknown(node: DictConfig, place: str) -> None:
    """`+key=…` opens Hydra's structs; a launcher would take more than its settings say."""
    kind = OmegaConf.get_type(node)
    if dataclasses.is_dataclass(kind):
        fields = [entry.name for entry in dataclasses.fields(kind)]
        for key in node:
            if key not in fields:
                raise unknown(f"setting of {place}", str(key), fields)


def _is_sampler(name: str) -> bool:
    if not name.startswith(SAMPLERS):
        return False
    import optuna  # a part of the extra [sweeps]

    return name.endswith("Sampler") and name.removeprefix(SAMPLERS) in optuna.samplers.__all__


def _require_logging(place: str, value: Any) -> None:
    """Python's logging calls what stands under `()` and `class`, and imports what follows `ext://`."""
    if not place.startswith(("job_logging.", "hydra_logging.")):
        return
    last = place.rpartition(".")[2]
    foreign = last in IMPORTED or (last == "class" and not LOGGING.fullmatch(str(value)))
    if foreign or (str(value).startswith("ext://") and value not in STREAMS):
        raise InvalidInput(f"hydra.{place} is {str(value)!r}, but {REMEDY}")


def _plugins(kind: type[Any]) -> Iterator[str]:
    for plugin in Plugins.instance().discover(kind):
        yield f"{plugin.__module__}.{plugin.__qualname__}"


def _values(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Every value of plain dictionaries and lists with its place."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _values(value, f"{place}.{key}" if place else str(key))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _values(value, f"{place}[{number}]")
    else:
        yield place, node
