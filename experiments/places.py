"""Where a run or a sweep is kept: `run_dir`, Hydra's own `hydra.run.dir` and `hydra.sweep.dir`, or a new folder."""

from omegaconf import DictConfig, OmegaConf

from solvers.ir import InvalidInput

FRESH = "runs/${name}/${now:%Y%m%d-%H%M%S}"
"""What conf/frame.yaml says of both of Hydra's settings."""


def asked_place(config: DictConfig, run_dir: str | None, what: str) -> str | None:
    """The folder that was asked for; None: a new one. `what` is `run` or `sweep`."""
    raw = OmegaConf.to_container(config.hydra[what], resolve=False)
    assert isinstance(raw, dict)
    if raw["dir"] == FRESH:
        return run_dir
    if run_dir is not None:
        raise InvalidInput(f"run_dir and hydra.{what}.dir are both given, and mean the same: leave one of them out")
    return str(config.hydra[what].dir)
