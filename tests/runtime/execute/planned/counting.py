"""Verdicts counted: by program, solver and budget, and what was refused or broken, in words."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tests.runtime.execute.planned.drawing import TIGHT
from tests.runtime.execute.planned.judging import Judgement, Verdict
from tests.runtime.execute.planned.programs import DRAWN, program

JUDGEMENTS: tuple[Judgement, ...] = ("kept", "refused", "broken")


def counted(verdicts: Iterable[Verdict]) -> Counter[Judgement]:
    """How many of each."""
    return Counter(verdict.judged for verdict in verdicts)


def static(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Those of programs whose sequence of operators and sizes is the same in each step."""
    return [verdict for verdict in verdicts if program(verdict.run.program).static]


def told(verdict: Verdict) -> str:
    """One line about a run."""
    run = verdict.run
    place = f"{run.program}, {run.solver}, budget share {run.share}, seed {run.seed}, {run.machine} link"
    place += "" if run.another is None else f", run on a {run.another} one"
    place += f", noise {run.noise}" if run.noise else ""
    return f"{verdict.judged}: {place}: {verdict.why or f'{verdict.deviation:+.4%}'}"


def page(verdicts: Sequence[Verdict]) -> str:
    """All of it as Markdown."""
    fixed = static(verdicts)
    total, of_static = counted(verdicts), counted(fixed)
    swapping = sum(any(counts.planned for counts in verdict.counts) for verdict in verdicts)
    lines = [
        f"{len(verdicts)} runs: " + ", ".join(f"{total[name]} {name}" for name in JUDGEMENTS) + ".",
        f"Of {len(fixed)} with a static sequence: "
        + ", ".join(f"{of_static[name]} {name}" for name in JUDGEMENTS)
        + ".",
        f"{swapping} runs swapped; the farthest peak from its prediction: {_farthest(fixed):.4%}.",
        "",
        *_table("program", verdicts, _program),
        *_table("solver", verdicts, lambda verdict: verdict.run.solver),
        *_table("budget", verdicts, _band),
        *_table("link", verdicts, lambda verdict: verdict.run.machine),
    ]
    lines += [f"- {told(verdict)}" for verdict in verdicts if verdict.judged != "kept"]
    return "\n".join(lines) + "\n"


def _farthest(verdicts: Iterable[Verdict]) -> float:
    return max((abs(verdict.deviation) for verdict in verdicts if verdict.judged == "kept"), default=0.0)


def _program(verdict: Verdict) -> str:
    name = verdict.run.program
    return "random layers" if name.startswith(DRAWN) else name


def _band(verdict: Verdict) -> str:
    share = verdict.run.share
    return "least" if share == 0 else "tight" if share <= TIGHT else "0.95 of the peak" if share == 1 else "between"


def _table(title: str, verdicts: Sequence[Verdict], key: Callable[[Verdict], str]) -> list[str]:
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(key(verdict), []).append(verdict)
    lines = [f"| {title} | runs | kept | refused | broken | swaps a step | farthest peak |", "|---|" + "---:|" * 6]
    for name, group in groups.items():
        counts = counted(group)
        swaps = [verdict.counts[-1].planned for verdict in group if verdict.counts]
        mean = f"{sum(swaps) / len(swaps):.0f}" if swaps else "none"
        numbers = " | ".join(str(counts[judged]) for judged in JUDGEMENTS)
        lines.append(f"| {name} | {len(group)} | {numbers} | {mean} | {_farthest(static(group)):.4%} |")
    return [*lines, ""]
