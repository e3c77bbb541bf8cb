"""`bayplan compare`: one experiment, every solver planned, checked and executed."""

from experiments.commands.hydra import hydra_command

command = hydra_command(
    "compare", "Run one experiment: Hydra overrides follow, as in `experiment=demo` or `experiment=lynx`."
)
