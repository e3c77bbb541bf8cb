"""`bayplan train`: real training under a plan, and the same without."""

from experiments.commands.hydra import hydra_command

command = hydra_command("train", "Train under a plan: Hydra overrides follow, as in `experiment=demo`.")
