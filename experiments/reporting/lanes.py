"""Steps that a run wrote down as lanes: what was planned above what was executed, on one time axis."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from experiments.reporting.charts import FINEST, KINDS, Lanes, Panel, Shape, Strip, Tick, bars, ticks
from experiments.reporting.folder import Recorded
from solvers.ir import OpGraph, Report, Row
from solvers.ir.report import Span

MOST_PANELS, MOST_STRIPS = 12, 64
"""Steps, and lanes of all of them together, that one picture holds."""
WHOLE = 0.95
"""A step this share of what a report spans is all of it; a shorter one is the last of several."""
SHORTEST = 5e-4
"""Waits below this share of a step are not drawn."""
LANES = {"compute": "compute", "in": "in", "out": "out", "host": "host", "comm": "comm"}
OF_LANE = {"in": "swap_in", "out": "swap_out", "host": "host", "comm": "comm"}
"""What a lane's spans are where their labels do not say."""


@dataclass(frozen=True)
class Step:
    """One step of a report, with what each of its spans is; `begin_us` is where it begins, if others came before."""

    recorded: Recorded
    phases: tuple[str, ...]
    begin_us: float

    @property
    def report(self) -> Report:
        """The report."""
        return self.recorded.report

    @property
    def end_us(self) -> float:
        """Where the step ends."""
        return self.report.makespan_us

    @cached_property
    def lanes(self) -> Mapping[str, list[tuple[str, Span]]]:
        """By lane, in the order of devices and lanes: kinds and spans of the step that take time."""
        found: dict[str, list[tuple[str, Span]]] = {}
        for span in self.report.spans:
            if span.end_us > max(span.start_us, self.begin_us):
                found.setdefault(_lane(span.lane), []).append((self._kind(span), span))
        for lane, spans in found.items():
            if self.waits and lane.endswith(".compute"):
                shortest_us = SHORTEST * (self.end_us - self.begin_us)
                spans += [("stall", gap) for gap in _gaps([span for _, span in spans], shortest_us)]
        return dict(sorted(found.items(), key=_order))

    @property
    def waits(self) -> bool:
        """Whether gaps between operators are waits that the report counts: one device, with its base stated."""
        return self.report.base_us is not None and len(devices_of(self.report)) == 1

    def named(self) -> Mapping[str, list[tuple[str, Span]]]:
        """The same by names that people read: stages of a pipeline, lanes of one device."""
        devices = {lane.partition(".")[0] for lane in self.lanes}
        kinds = {lane.partition(".")[2] for lane in self.lanes}
        streams = [lane for lane in self.lanes if lane.partition(".")[2].startswith("stream")]
        names = {lane: _name(lane, len(devices) > 1, kinds == {"compute"}) for lane in self.lanes}
        if len(streams) == 1:  # a rank's own, whose number means nothing to a reader
            names[streams[0]] = "compute"
        return {names[lane]: spans for lane, spans in self.lanes.items()}

    def _kind(self, span: Span) -> str:
        word = span.label.partition(" ")[0]
        if word in KINDS and word != "compute":
            return word
        of_lane = OF_LANE.get(_lane(span.lane).partition(".")[2], "compute")
        number = re.search(r"\bop (\d{1,9})\b", span.label) if word == "compute" else None
        if number is not None and int(number[1]) < len(self.phases):
            return self.phases[int(number[1])]
        return of_lane


def steps_of(reports: Sequence[Recorded], graph: OpGraph | None, rows: Sequence[Row]) -> list[Step]:
    """The reports that have lanes, in the order of the rows, what was planned before what was executed."""
    phases = () if graph is None else tuple(op.phase for op in graph.ops)
    order = {str(row.asked.get("policy")): number for number, row in enumerate(rows)}
    shown = [one for one in reports if one.report.spans]
    shown.sort(key=lambda one: (_place(one.name, order), one.name, one.role == "executed"))
    return [Step(one, phases, _begin_us(one, rows)) for one in shown]


def lanes_of(steps: Sequence[Step], finest: int = FINEST) -> Lanes | None:
    """The picture; None where there is nothing to draw."""
    shown: list[Step] = []
    for step in steps[:MOST_PANELS]:
        if sum(len(one.lanes) for one in (*shown, step)) <= MOST_STRIPS:
            shown.append(step)
    longest = max((one.end_us - one.begin_us for one in shown), default=0.0)
    if not longest > 0:
        return None
    unit, scale = ("s", 1e6) if longest >= 2e6 else ("ms", 1e3)
    panels = tuple(_panel(step, longest, finest) for step in shown)
    used = {shape.kind for panel in panels for strip in panel.strips for shape in strip.shapes}
    left = len(steps) - len(shown)
    title = "Lanes of a step, planned beside executed, on one time axis"
    title += f"; {left} more in the folder's reports" if left else ""
    marks: tuple[Tick, ...] = ticks(longest, scale)
    return Lanes(title, panels, marks, f"{unit} since the step began", tuple(kind for kind in KINDS if kind in used))


def _panel(step: Step, longest: float, finest: int) -> Panel:
    strips = []
    for name, spans in step.named().items():
        kinds = dict.fromkeys(kind for kind, _ in spans)
        shapes = tuple(
            Shape(
                kind,
                bars(
                    [(span.start_us, span.end_us) for one, span in spans if one == kind],
                    step.begin_us,
                    step.begin_us + longest,
                    finest,
                ),
            )
            for kind in sorted(kinds, key=list(KINDS).index)
        )
        strips.append(Strip(name, shapes))
    length = step.end_us - step.begin_us
    facts = f"{length / 1e3:,.3f} ms" + (", the last of several steps" if step.begin_us else "")
    how = step.report.how
    return Panel(step.recorded.name, how, f"{facts}; {step.report.source}", tuple(strips), 100 * length / longest)


def _begin_us(one: Recorded, rows: Sequence[Row]) -> float:
    """Where the last step begins in a report of several; 0 where it is of one."""
    own = [row for row in rows if one.name == row.asked.get("policy") or one.name.startswith(f"{_policy(row)}-rank-")]
    row = own[0] if own else rows[0] if len(rows) == 1 else None
    step_us = None if row is None else row.figures.get("step_us")
    whole = one.report.makespan_us
    if isinstance(step_us, int | float) and 0 < step_us < WHOLE * whole:
        return whole - step_us
    return 0.0


def _policy(row: Row) -> str:
    return str(row.asked.get("policy"))


def _place(name: str, order: Mapping[str, int]) -> int:
    known = [number for policy, number in order.items() if name == policy or name.startswith(f"{policy}-rank-")]
    return min(known, default=len(order))


def devices_of(report: Report) -> set[str]:
    """The devices, or stages, whose compute lanes a report has."""
    return {span.lane.partition(".")[0] for span in report.spans if span.lane.endswith(".compute")}


def _gaps(spans: Sequence[Span], shortest_us: float) -> list[Span]:
    """The time between one operator and the next, as spans of their lane; what nobody could see is left out."""
    return [
        Span(action=0, lane=one.lane, label="stall", start_us=one.end_us, end_us=other.start_us)
        for one, other in pairwise(sorted(spans, key=lambda span: span.start_us))
        if other.start_us - one.end_us >= shortest_us
    ]


def _lane(lane: str) -> str:
    """A lane as DEVICE.WHAT; streams and groups of a rank's own numbers as what they are for."""
    if re.match(r"\d+\.", lane):
        return lane
    word = lane.partition(" ")[0]
    return {"communication": "0.comm", "host": "0.host", "stream": f"0.{lane}"}.get(word, f"0.{lane}")


def _order(lane: tuple[str, object]) -> tuple[int, int, str]:
    device, _, what = lane[0].partition(".")
    places: Iterable[str] = LANES
    known = list(places)
    return int(device) if device.isdigit() else 0, known.index(what) if what in known else 0, what


def _name(lane: str, several: bool, pipeline: bool) -> str:
    device, _, what = lane.partition(".")
    if pipeline and several:
        return f"stage {device}"
    return f"{device} {what}" if several else what
