"""`python -m experiments.fit.evidence`: every configuration, how many were right, the worst error beside the best."""

from collections.abc import Callable, Iterator

import click

from experiments.commands.show import print_table
from experiments.fit.evidence import Allocator, Case, cases, stage_cases, swap_cases
from experiments.fit.evidence.case import HARDWARE, MIB
from experiments.fit.recording import STEPS

KINDS: dict[str, Callable[[Allocator], Iterator[Case]]] = {
    "programs": cases,
    "swaps": swap_cases,
    "shapes": stage_cases,
}
HEADS = ("what", "budget (MiB)", "of limit", "predicted", "executed", "", "predicted peak", "executed peak")


@click.command()
@click.option("--allocator", type=click.Choice(["exact", "caching", "expandable"]), default="exact", show_default=True)
@click.option("--of", "kind", type=click.Choice(list(KINDS)), default="programs", show_default=True)
def main(allocator: Allocator, kind: str) -> None:
    """Print what was predicted and what happened; a peak stands only where a step was to fit, or did."""
    if allocator == "exact" and kind != "programs":
        raise click.UsageError("exact bytes are for --of programs: choose --allocator caching or expandable")
    found = list(KINDS[kind](allocator))
    what = f"executed: {STEPS} steps" if kind != "shapes" else "executed: the computed step's requests"
    print_table(
        f"allocator {allocator}, device sim ({HARDWARE}); {what}, simulated device", HEADS, [_row(one) for one in found]
    )
    errors = [abs(one.error) for one in found if one.executed and one.predicted]
    right = sum(one.right for one in found)
    told = f"error of the peak: worst {100 * max(errors):.3f} %, best {100 * min(errors):.3f} %"
    print(f"right: {right} of {len(found)}; {told}")


def _row(one: Case) -> tuple[str, ...]:
    return (
        one.program,
        f"{one.budget_bytes / MIB:.2f}",
        f"{one.factor:.2f}",
        "fits" if one.predicted else "no",
        "fits" if one.executed else "no",
        "right" if one.right else "WRONG",
        f"{one.predicted_reserved / MIB:.2f}" if one.predicted else "-",
        f"{one.executed_reserved / MIB:.2f}" if one.executed else "-",
    )


if __name__ == "__main__":
    main()
