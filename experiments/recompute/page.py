"""The race's rows as a table: sessions, what rivals reach within the same bytes, and who is beaten."""

from collections.abc import Sequence

from experiments.recompute.race import Ran

OURS = ("heu", "heu, two policies", "block", "full")


def page(rows: Sequence[Ran]) -> str:
    """Markdown: for each model and budget the steps over plain's, peaks, predictions, and the best rival that fits."""
    lines = [
        "| model | budget | way | step | peak | predicted step | predicted peak | best rival that fits | its step "
        "| its peak |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row.model for row in rows):
        own = [row for row in rows if row.model == name]
        plain = own[0]
        for row in own:
            if row.share is not None:
                lines.append(_line(plain, row, best_within(own, row.share)))
    return "\n".join([*lines, "", *_errors(rows)])


def best_within(own: Sequence[Ran], share: float) -> Ran | None:
    """The fastest rival of a model whose peak keeps the budget."""
    limit = share * (own[0].peak_bytes or 0)
    fitting = [row for row in own[1:] if row.share is None and row.peak_bytes is not None and row.peak_bytes <= limit]
    return min(fitting, key=lambda row: row.step_us or 0.0, default=None)


def dominated(own: Sequence[Ran]) -> list[tuple[Ran, Ran]]:
    """Sessions by `heu` that a rival beats in step and peak, with that rival; a model's rows, plain first."""
    return [
        (row, rival)
        for row in own
        if row.way.startswith("heu") and row.step_us is not None and row.peak_bytes is not None
        for rival in own[1:]
        if rival.share is None and rival.step_us is not None and rival.peak_bytes is not None
        and rival.step_us < row.step_us and rival.peak_bytes < row.peak_bytes
    ]  # fmt: skip


def _line(plain: Ran, row: Ran, rival: Ran | None) -> str:
    cells = [row.model, f"{row.share:.0%}", row.way]
    if row.error is not None:
        least = "" if row.least_bytes is None else f", least {_of(row.least_bytes, plain.peak_bytes)}"
        cells += [f"refused{least}", "", "", ""]
    else:
        cells += [
            _of(row.step_us, plain.step_us), _of(row.peak_bytes, plain.peak_bytes),
            _of(row.predicted_us, plain.step_us), _of(row.predicted_peak_bytes, plain.peak_bytes),
        ]  # fmt: skip
    if rival is None:
        cells += ["none", "", ""]
    else:
        cells += [rival.way, _of(rival.step_us, plain.step_us), _of(rival.peak_bytes, plain.peak_bytes)]
    return f"| {' | '.join(cells)} |"


def _of(value: float | None, plain: float | None) -> str:
    return "" if value is None or not plain else f"{value / plain:.4f}"


def _errors(rows: Sequence[Ran]) -> list[str]:
    return [f"- {row.model}, {row.way}: {row.error}" for row in rows if row.error is not None and row.share is None]
