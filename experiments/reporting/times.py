"""Where a step's time goes: what it takes by itself and each cause of waiting, in parts that add up to the whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.reporting.charts import KINDS, Segment, Stack
from experiments.reporting.lanes import Step, devices_of
from experiments.tables import Table
from solvers.ir import Row
from solvers.ir.report import Span

NS = 1000
REST = "not explained"
LAST = ("launches", "idles", REST)
"""Columns that stand behind all others."""
CLOSE = 1e-3
"""A report whose parts miss its length by more than this share of it is told lane by lane."""
ACCOUNTS = (
    "In µs; each line adds up to its step, exactly. Base: the step with unlimited memory; waits: the compute lane "
    "stands still for transfers; launches: it waits for the host, less the same in a step without the plan. Of a "
    "pipeline, and where a report states no base, each lane that computes is told by what it does, and idles."
)
RECOVERIES = (
    "In µs by the clock of the machine, from a failure to the first step that counts, which is `redo`; each line adds "
    "up, exactly. Parts that were cut short by another failure are left out."
)
CAUSES = {"swap_in": "waits for data", "swap_out": "waits for memory", "on_demand": "fetches on demand"}
COLOURS = {"swap_in": "swap_in", "swap_out": "swap_out", "on_demand": "stall"}
MOST = 24
"""Bars of one picture."""


@dataclass(frozen=True)
class Part:
    """A share of a step, in nanoseconds; `kind` gives it its colour."""

    kind: str
    name: str
    ns: int


@dataclass(frozen=True)
class Account:
    """A step, or one lane of it, in parts whose sum is its length to the nanosecond; `whose` step a lane is of."""

    name: str
    how: str
    parts: tuple[Part, ...]
    whose: str = ""

    @property
    def total_ns(self) -> int:
        """The length."""
        return sum(part.ns for part in self.parts)


def accounts_of(steps: Sequence[Step]) -> list[Account]:
    """One account of each step that states its base and its stalls; of others one of each lane that computes."""
    found: list[Account] = []
    for step in steps:
        whole = _by_cause(step) if not step.begin_us else None
        found += [whole] if whole is not None else _by_lane(step)
    return found


def account_table(accounts: Sequence[Account]) -> Table | None:
    """The parts as a table, in microseconds; None where there is nothing to tell."""
    return _table("Where the time of a step goes (µs)", ACCOUNTS, accounts) if accounts else None


def recovery_table(recoveries: Sequence[Account]) -> Table | None:
    """The same of recoveries."""
    return _table("Where the time of each recovery goes (µs)", RECOVERIES, recoveries) if recoveries else None


def _table(title: str, note: str, accounts: Sequence[Account]) -> Table:
    names = list(dict.fromkeys(part.name for one in accounts for part in one.parts))
    names.sort(key=lambda name: LAST.index(name) if name in LAST else -1)
    whole = all(part.ns % NS == 0 for one in accounts for part in one.parts)
    body = []
    for one in accounts:
        known = {part.name: part.ns for part in one.parts}
        cells = [_us(known[name], whole) if name in known else "–" for name in names]
        body.append((one.name, one.how, *cells, _us(one.total_ns, whole)))
    return Table(title, ("of", "how", *names, "together"), tuple(body), note)


def stacks_of(accounts: Sequence[Account]) -> tuple[Stack, ...]:
    """A bar for each step, on one scale; of a step told lane by lane the mean of its lanes.

    A part below 0 (the host ran ahead) has no width: the shares are those of the others, and the bar says what is off.
    """
    groups: dict[tuple[str, str], list[Account]] = {}
    for one in accounts:
        groups.setdefault((one.whose or one.name, one.how), []).append(one)
    longest = max((sum(max(part.ns, 0) for part in one.parts) for one in accounts), default=0)
    return tuple(_stack(name, group, longest) for (name, _), group in list(groups.items())[:MOST] if longest)


def _stack(name: str, group: Sequence[Account], longest_ns: int) -> Stack:
    spent: dict[tuple[str, str], int] = {}
    for one in group:
        for part in one.parts:
            spent[part.kind, part.name] = spent.get((part.kind, part.name), 0) + part.ns
    total, drawn = sum(spent.values()), sum(ns for ns in spent.values() if ns > 0)
    segments = tuple(
        Segment(kind, what, 100 * ns / len(group) / longest_ns, f"{ns / drawn:.1%}")
        for (kind, what), ns in spent.items()
        if ns > 0
    )
    length = f"{total / len(group) / 1e6:,.3f} ms"
    mean = f", the mean of {len(group)} lanes" if len(group) > 1 else ""
    off = "".join(f", {what} {ns / len(group) / 1e6:,.3f} ms" for (_, what), ns in spent.items() if ns < 0)
    return Stack(name, group[0].how, segments, f"{length}{mean}{off}")


def shares_of(rows: Sequence[Row]) -> tuple[Stack, ...]:
    """Where the time of a cluster's lives goes, of rows that tell it as shares of the whole."""
    kinds = {"training": "forward", "transition": "swap_in", "lost": "stall", "saving": "host", "stopped": "comm"}
    found = []
    for row in rows:
        told = row.figures.get("shares")
        shares = {str(name): one for name, one in told.items() if isinstance(one, int | float)} if told else {}
        if isinstance(shares.get("training"), int | float):
            names = sorted(shares, key=lambda name: list(kinds).index(name) if name in kinds else len(kinds))
            segments = [
                Segment(kinds.get(name, "idle"), name, 100 * shares[name], f"{shares[name]:.2%}")
                for name in names
                if shares[name] > 0
            ]
            name = str(row.asked.get("policy"))
            found.append(Stack(name, "simulated", tuple(segments), f"{sum(shares.values()):.0%} of the time"))
    return tuple(found[:MOST])


def recoveries_of(rows: Sequence[Row]) -> list[Account]:
    """Where the time of each recovery of a training on processes went, from its failure to the next step."""
    kinds = {"detect": "stall", "decide": "host", "regroup": "comm", "transfer": "swap_in", "redo": "forward"}
    found = []
    for row in rows:
        told = row.figures.get("recoveries")
        for one in told if isinstance(told, list) else []:
            parts = one.get("recovery_us", {})
            names = sorted(parts, key=lambda name: list(kinds).index(name) if name in kinds else len(kinds))
            known = {name: parts[name] for name in names if isinstance(parts[name], int | float)}
            spent = tuple(Part(kinds.get(name, "compute"), name, round(us * NS)) for name, us in known.items())
            if spent and sum(part.ns for part in spent) > 0:
                found.append(Account(f"before step {one.get('step')}: {one.get('layout')}", "executed", spent))
    return found


def _by_cause(step: Step) -> Account | None:
    """Base, stalls by cause and launches; None where the report states no base, or they are not all of the step."""
    report = step.report
    if report.base_us is None:
        return None
    total = round(report.makespan_us * NS)
    parts = [Part("forward", "base", round(report.base_us * NS))]
    parts += [
        Part(COLOURS.get(cause, "stall"), CAUSES.get(cause, f"waits: {cause}"), round(us * NS))
        for cause, us in sorted(report.stall_us.items())
        if us
    ]
    if report.launch_us is not None:
        parts.append(Part("host", "launches", round(report.launch_us * NS)))
    rest = total - sum(part.ns for part in parts)
    if abs(rest) > CLOSE * total or len(devices_of(report)) > 1:
        return None
    return Account(step.recorded.name, report.how, (*parts, *([Part("idle", REST, rest)] if rest else [])))


def _by_lane(step: Step) -> list[Account]:
    """What each lane that computes does, and for how long it idles; a moment counts for what began first."""
    found = []
    lanes = step.named()
    for (lane, spans), name in zip(step.lanes.items(), lanes, strict=True):
        what = lane.partition(".")[2]
        if what == "compute" or what.startswith("stream"):
            own = (
                step.recorded.name if len(lanes) == 1 or what == "compute" == name else f"{step.recorded.name}: {name}"
            )
            found.append(Account(own, step.report.how, _parts(spans, step.begin_us, step.end_us), step.recorded.name))
    return found


def _parts(spans: Sequence[tuple[str, Span]], begin_us: float, end_us: float) -> tuple[Part, ...]:
    spent: dict[str, int] = {}
    reached, end = round(begin_us * NS), round(end_us * NS)
    total = end - reached
    for kind, span in sorted(spans, key=lambda one: one[1].start_us):
        start, stop = max(round(span.start_us * NS), reached), min(round(span.end_us * NS), end)
        if stop > start:
            spent[kind] = spent.get(kind, 0) + stop - start
            reached = stop
    idle = total - sum(spent.values())
    known: Mapping[str, str] = KINDS
    parts = [Part(kind, known.get(kind, kind), ns) for kind, ns in spent.items()]
    parts.sort(key=lambda part: list(KINDS).index(part.kind))
    return (*parts, Part("idle", "idles", idle))


def _us(ns: int, whole: bool) -> str:
    return f"{ns // NS:,}" if whole else f"{ns / NS:,.3f}"
