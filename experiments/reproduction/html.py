"""Outcomes as one HTML file: no script, nothing from the network; wide tables scroll in their own frame."""

from collections.abc import Sequence
from html import escape

from experiments.printable import printable
from experiments.reproduction.pages import summary_tables, tables_of
from experiments.reproduction.run import Outcome, provenance
from experiments.tables import Table

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:0 auto;padding:1rem;color:#222;background:#fff}"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin:1.6rem 0 .4rem}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.875rem}"
    "th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ddd;vertical-align:top}"
    "th:first-child,td:first-child{text-align:left}th{border-bottom:2px solid #888}"
    "p{font-size:.875rem;overflow-wrap:anywhere}summary{cursor:pointer;padding:.3rem 0;overflow-wrap:anywhere}"
)


def html_page(outcomes: Sequence[Outcome]) -> str:
    """The score, the summary and what differs; then every entry, folded."""
    parts = [_table(table) for table in summary_tables(outcomes)]
    parts += ["<h2>Entries</h2>", *(_entry(outcome) for outcome in outcomes)]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    title = "The papers' tables and figures beside ours"
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<title>{_text(title)}</title><style>{STYLE}</style></head>\n'
        f"<body><h1>{_text(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _entry(outcome: Outcome) -> str:
    entry = outcome.entry
    told = f"{outcome.name}: {entry.title} ({entry.place}; {outcome.how})"
    lines = [f"Provenance: {provenance(outcome)}; commit {outcome.commit or 'unknown'}; seed {outcome.seed}."]
    lines += [f"Kept: {outcome.kept.sentence()}."] if outcome.kept is not None else []
    lines += [f"Assumed: {one}" for one in entry.assumptions]
    lines += [f"Fitted: {one.constant} = {one.value}, to {one.to} ({one.place})." for one in entry.fitted]
    body = "".join(_table(table) for table in tables_of(outcome)) + "".join(f"<p>{_text(one)}</p>" for one in lines)
    return f"<details><summary>{_text(told)}</summary>{body}</details>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in table.head)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in line) + "</tr>" for line in table.body)
    note = f"<p>{_text(table.note)}</p>" if table.note else ""
    return f'<h2>{_text(table.title)}</h2><div class="wide"><table><tr>{head}</tr>{body}</table></div>{note}'


def _text(text: str) -> str:
    return escape(printable(" ".join(text.split())))
