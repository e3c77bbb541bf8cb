"""Outcomes as tables for a terminal and as Markdown pages."""

import json
from collections import Counter
from collections.abc import Sequence

from experiments.reproduction.entry import Claim, Entry
from experiments.reproduction.judge import DIFFERS, FAILED, VERDICTS, Judged
from experiments.reproduction.result import Interval, Series, Value
from experiments.reproduction.run import Outcome
from experiments.reproduction.score import score_table
from experiments.tables import NOTHING, Table, to_markdown

HEAD = ("quantity or claim", "place", "paper", "ours", "deviation", "verdict")


def tables_of(outcome: Outcome) -> list[Table]:
    """The verdicts with their reasons, then every value of the result."""
    return [verdict_table(outcome), *value_tables(outcome)]


def verdict_table(outcome: Outcome) -> Table:
    """One line for each quantity and claim; reasons and derivations are numbered and stand below."""
    reasons = _reasons(outcome.rows)
    body = tuple(_line(one, reasons) for one in outcome.rows)
    entry = outcome.entry
    return Table(f"{outcome.name}: {entry.title} ({entry.place}; {outcome.how})", HEAD, body, _listed(reasons))


def value_tables(outcome: Outcome) -> list[Table]:
    """All series that are more than one figure, those with the same labels side by side; then what no row shows."""
    if outcome.result is None:
        return []
    groups: dict[tuple[str, ...], list[Series]] = {}
    for series in outcome.result.series:
        if tuple(series.points) != (series.name,):
            groups.setdefault(tuple(series.points), []).append(series)
    shown = {one.of for one in outcome.entry.quantities}
    scalars = [one for one in outcome.result.series if tuple(one.points) == (one.name,) and one.name not in shown]
    tables = [_values(f"{outcome.name}: values", labels, group) for labels, group in groups.items()]
    if scalars:
        body = tuple((one.name, show_value(one.points[one.name], one.unit)) for one in scalars)
        tables.append(Table(f"{outcome.name}: single values", ("figure", "ours"), body))
    return tables


def summary_table(outcomes: Sequence[Outcome]) -> Table:
    """How many rows of each entry got which verdict."""
    counts = [Counter(one.verdict for one in outcome.rows) for outcome in outcomes]
    present = [verdict for verdict in VERDICTS if any(count[verdict] for count in counts)]
    body = tuple(
        (outcome.name, outcome.entry.place, outcome.how, *(str(count[verdict] or NOTHING) for verdict in present))
        for outcome, count in zip(outcomes, counts, strict=True)
    )
    note = f"Rows by verdict; {sum(sum(count.values()) for count in counts)} in all."
    kept = [f"{outcome.name}: {outcome.kept.sentence()}" for outcome in outcomes if outcome.kept is not None]
    note += f" Kept: {'; '.join(kept)}." if kept else ""
    return Table("The papers' figures beside ours", ("entry", "place", "how", *present), body, note)


def difference_table(outcomes: Sequence[Outcome]) -> Table | None:
    """Every row that differs or failed, with its reason; None where there is none."""
    wrong = [(outcome, one) for outcome in outcomes for one in outcome.rows if one.verdict in (DIFFERS, FAILED)]
    if not wrong:
        return None
    reasons = _reasons([one for _, one in wrong])
    body = tuple((outcome.name, *_line(one, reasons)) for outcome, one in wrong)
    return Table("What differs, and why", ("entry", *HEAD), body, _listed(reasons))


def page(outcome: Outcome) -> str:
    """An entry's own Markdown page."""
    entry = outcome.entry
    parts = [f"# {entry.title}", _origin(outcome), to_markdown([verdict_table(outcome)])]
    notes = outcome.result.notes if outcome.result is not None else ()
    parts += [_list("Notes", notes), to_markdown(value_tables(outcome)), _list("Assumed", entry.assumptions)]
    parts += [_list("Constants fitted to the paper", _fitted(entry), "None."), _failures(outcome)]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def summary_page(outcomes: Sequence[Outcome]) -> str:
    """The summary of a run over several entries."""
    return to_markdown(summary_tables(outcomes))


def summary_tables(outcomes: Sequence[Outcome]) -> list[Table]:
    """The score, the verdicts of each entry, and what differs."""
    differences = difference_table(outcomes)
    return [score_table(outcomes), summary_table(outcomes), *([differences] if differences else [])]


def show_number(value: float) -> str:
    """Four significant digits; whole numbers of any length as they are."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def show_value(value: Value, unit: str = "") -> str:
    """A number with its unit, an outcome, or `failed`."""
    if value is None:
        return "failed"
    return value if isinstance(value, str) else _with_unit(show_number(value), unit)


def show_interval(interval: Interval, unit: str) -> str:
    """One number, or both ends."""
    low, high = interval
    text = show_number(low) if low == high else f"{show_number(low)} to {show_number(high)}"
    return _with_unit(text, unit)


def show_claim(claim: Claim | None, unit: str) -> str:
    """What the paper states."""
    if claim is None:
        return NOTHING
    if claim.value is not None:
        return _with_unit(show_number(claim.value), unit)
    if claim.low is None or claim.high is None:
        word, end = ("at most", claim.high) if claim.high is not None else ("at least", claim.low)
        return f"{word} {_with_unit(show_number(end or 0.0), unit)}"
    return show_interval((claim.low, claim.high), unit)


def _reasons(rows: Sequence[Judged]) -> list[str]:
    found = [text for one in rows for text in (_derivation(one.paper), one.reason) if text is not None]
    return list(dict.fromkeys(found))


def _derivation(claim: Claim | None) -> str | None:
    return None if claim is None or claim.derived is None else f"not printed, derived: {claim.derived}"


def _listed(reasons: Sequence[str]) -> str:
    return " ".join(f"[{number}] {_sentence(reason)}" for number, reason in enumerate(reasons, 1))


def _line(judged: Judged, reasons: Sequence[str]) -> tuple[str, ...]:
    mark = "" if judged.reason is None else f" [{reasons.index(judged.reason) + 1}]"
    deviation = ", ".join(f"{100 * one:+.1f} %" for one in judged.deviation) or NOTHING
    paper, derivation = show_claim(judged.paper, judged.unit), _derivation(judged.paper)
    paper += "" if derivation is None else f", derived [{reasons.index(derivation) + 1}]"
    return judged.name, judged.place, paper, _ours(judged), deviation, judged.verdict + mark


def _ours(judged: Judged) -> str:
    if judged.looked:
        return f"{judged.broken} breaches in {judged.looked} looks" if judged.broken else f"at all {judged.looked}"
    return NOTHING if judged.ours is None else show_interval(judged.ours, judged.unit)


def _values(title: str, labels: Sequence[str], group: Sequence[Series]) -> Table:
    head = ("", *(f"{one.name} ({one.unit})" if one.unit else one.name for one in group))
    body = tuple((label, *(show_value(one.points[label]) for one in group)) for label in labels)
    return Table(title, head, body)


def _with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}" if unit else text


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _origin(outcome: Outcome) -> str:
    entry, made = outcome.entry, outcome.machine
    on = f"{made['cores']}-core {made['processor']}, Python {made['python']}" if made else NOTHING
    lines = [("system", entry.system), ("place in the paper", entry.place), ("how obtained", entry.how)]
    lines += [("command", f"`{outcome.command}`"), ("commit", outcome.commit or NOTHING), ("computed on", on)]
    lines += [("content", f"`{outcome.content}`")] if outcome.content is not None else []
    lines += [("kept", outcome.kept.sentence())] if outcome.kept is not None else []
    used = [("hardware files", entry.hardware), ("model files", entry.models), ("other files", entry.reads)]
    lines += [(name, ", ".join(f"`{file}`" for file in files)) for name, files in used if files]
    lines += [("parameters", f"`{json.dumps(entry.parameters)}`")] if entry.parameters else []
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {' '.join(str(value).split())} |" for name, value in lines)


def _list(title: str, items: Sequence[str], none: str = "") -> str:
    if not items:
        return f"**{title}**: {none}" if none else ""
    return f"**{title}**\n\n" + "\n".join(f"- {' '.join(item.split())}" for item in items)


def _fitted(entry: Entry) -> list[str]:
    return [f"{one.constant} = {one.value}, fitted to {one.to} ({one.place})" for one in entry.fitted]


def _failures(outcome: Outcome) -> str:
    failed = [f"{_key(cell.key)}: {cell.failure}" for cell in outcome.cells if cell.failure is not None]
    return _list("Cells that failed", failed)


def _key(key: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in key.items()) if isinstance(key, dict) else str(key)
