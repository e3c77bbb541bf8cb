"""Each recovery over time, a lane for each node: `python -m experiments.elastic.pictures RUN_DIR`.

Reads the event log of `bayplan train experiment=elastic`, so that a run that was made before can be drawn, too.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.elastic.log import Attempt, Episode, episodes_of, read_events
from experiments.plots import STYLE, png_bytes, settled, svg_text
from experiments.refusals import refusing
from experiments.run_directory import RunDirectory, open_run_directory
from runtime.elastic import PARTS
from solvers.ir.errors import InvalidInput
from solvers.ir.replan import Transfer
from solvers.replan.transfer.transfer_rounds import transfer_rounds

COLOURS = {
    "trains": "#dfe3e8",
    "detect": "#f0a58f",
    "regroup": "#9aa3ab",
    "decide": "#c9a227",
    "transfer": "#4aa564",
    "redo": "#4c9ed9",
}
FAILED = "#d62728"
MOST = 6
"""Recoveries of one picture; more are too many to read."""
LONG = 1.5
"""A detection that takes longer than this many times the rest is cut off at the left, and the picture says so."""
NAME = "recoveries"
HOW = {"kill": "killed", "stop": "stopped", "": "did not hear the vote"}


class Span(NamedTuple):
    """What a node does for a while; a transfer says what arrives."""

    node: int
    what: str
    begin_s: float
    end_s: float
    received_bytes: int = 0


def spans_of(episode: Episode) -> list[Span]:
    """All that all nodes do between the failure and the first step that counts."""
    first, begun = episode.attempts[0], episode.began_s
    gone = {one.node for one in episode.failures if one.how and one.at_s <= first.known_s}
    found = [Span(node, "detect", begun, first.known_s) for node in first.before if node not in gone]
    ends = [*(one.known_s for one in episode.attempts[1:]), episode.stepped_s]
    for attempt, end in zip(episode.attempts, ends, strict=True):
        found += _of_attempt(attempt, end)
    return [span for span in found if span.end_s > span.begin_s]


def _of_attempt(attempt: Attempt, end_s: float) -> list[Span]:
    """From the moment at which the generation was known to be over to the next failure, or the step."""
    if attempt.called is None:
        return []
    decided = attempt.called["at_s"]
    stopped = min(decided, max([attempt.known_s, *attempt.left_s.values()]))
    found = []
    for node in attempt.called["nodes"]:
        if node in attempt.before:
            found += [Span(node, "regroup", attempt.known_s, stopped), Span(node, "decide", stopped, decided)]
        grouped = attempt.grouped_s.get(node, end_s)
        moved = attempt.transferred_s.get(node, end_s)
        found += [
            Span(node, "regroup", decided, grouped),
            Span(node, "transfer", grouped, moved, attempt.received_bytes.get(node, 0)),
            Span(node, "redo", moved, end_s),
        ]
    return [span._replace(begin_s=min(span.begin_s, end_s), end_s=min(span.end_s, end_s)) for span in found]


def title_of(episode: Episode) -> tuple[str, str]:
    """What happened, and what was done about it."""
    first, called = episode.attempts[0], episode.attempts[-1].called
    assert called is not None, "an episode has come to a step"
    causes = [
        f"node {one.node} {HOW[one.how]} at {one.moment} of step {one.step}"
        if one.how
        else f"node {one.node} {HOW['']}"
        for one in episode.failures
    ]
    joined = sorted({node for one in episode.attempts if one.called for node in one.called["joined"]})
    if joined:
        causes.append(f"node{'s' * (len(joined) > 1)} {', '.join(map(str, joined))} joined")
    if first.why and not episode.failures:
        causes.insert(0, first.why)
    took = (episode.stepped_s - episode.began_s) * 1e3
    head = f"{len(first.before)} → {len(called['nodes'])} nodes: {', '.join(causes)}; {took:,.0f} ms with the step"
    moves = [Transfer(layer=layer, source=source, target=target) for layer, source, target in called["moves"]]
    received = sum(sum(one.received_bytes.values()) for one in episode.attempts)
    layers, rounds = (_counted(count, what) for count, what in ((len(moves), "layer"), (_rounds(moves), "round")))
    moved = f"{layers}, {received / 1e6:.1f} MB in {rounds}" if moves else "none"
    parts = ", ".join(f"{name} {_ms(episode.parts_us.get(name))}" for name in PARTS)
    return head, f"plan {called['layout']}; moved: {moved}\n{parts} (ms)"


def _rounds(moves: Sequence[Transfer]) -> int:
    return len(transfer_rounds(moves))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _ms(value_us: int | None) -> str:
    return "–" if value_us is None else f"{value_us / 1e3:,.0f}"


def recoveries_figure(episodes: Sequence[Episode], title: str) -> Figure:
    """A panel for each recovery, each on its own axis of time, which begins with the failure."""
    lanes = [_lanes(episode) for episode in episodes]
    heights = [0.78 + 0.17 * len(nodes) for nodes in lanes]
    with rc_context(cast(Any, STYLE)):
        figure = Figure(figsize=(8.6, 0.75 + sum(heights)), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12)  # type: ignore[union-attr, call-arg]
        rows = figure.subplots(len(episodes), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        for axes, episode, nodes in zip(rows, episodes, lanes, strict=True):
            _draw(axes, episode, nodes)
        rows[-1].set_xlabel("ms since the failure, or since the others were asked to let a node in")
        patches: list[Any] = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
        patches.append(Line2D([], [], color=FAILED, marker="x", ls="", mew=2, label="failure"))
        figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), columnspacing=1.2)
        figure.suptitle(title, fontsize=10.5, x=0.01, ha="left")
        return settled(figure)


def _lanes(episode: Episode) -> list[int]:
    """All nodes that were there before or after."""
    after = [node for one in episode.attempts if one.called for node in one.called["nodes"]]
    return sorted({*episode.attempts[0].before, *after})


def _draw(axes: Axes, episode: Episode, nodes: Sequence[int]) -> None:
    place = {node: number for number, node in enumerate(nodes)}
    begun, rest = episode.began_s, episode.stepped_s - episode.attempts[0].known_s
    silent = episode.attempts[0].known_s - begun
    shown_s = silent - 0.3 * rest if silent > LONG * rest else -0.04 * (rest + silent)
    last = (episode.stepped_s - begun) * 1.03
    spans = [span._replace(begin_s=span.begin_s - begun, end_s=span.end_s - begun) for span in spans_of(episode)]
    before = [Span(node, "trains", min(shown_s, -1.0), 0) for node in episode.attempts[0].before]
    called = episode.attempts[-1].called
    after = [Span(node, "trains", episode.stepped_s - begun, last) for node in (called or {})["nodes"]]
    for span in [*before, *after, *spans]:
        bar = [(span.begin_s * 1e3, (span.end_s - span.begin_s) * 1e3)]
        axes.broken_barh(bar, (place[span.node] - 0.42, 0.84), facecolors=COLOURS[span.what], edgecolor="white", lw=0.2)
    _tell_bytes(axes, [span for span in spans if span.received_bytes], place)
    _mark_failures(axes, episode, place, (shown_s, silent))
    axes.set_xlim(shown_s * 1e3, last * 1e3)
    axes.set_ylim(len(nodes) - 0.45, -0.55)
    axes.set_yticks(range(len(nodes)), [f"node {node}" for node in nodes], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    head, told = title_of(episode)
    axes.set_title(head, fontsize=9.5, pad=27)
    axes.text(0, 1.02, told, transform=axes.transAxes, fontsize=7.5, color="#555555", va="bottom")


def _tell_bytes(axes: Axes, spans: Sequence[Span], place: dict[int, int]) -> None:
    """What a node received, behind its transfer."""
    for span in spans:
        text = f" {span.received_bytes / 1e6:.1f} MB"
        axes.text(span.end_s * 1e3, place[span.node], text, fontsize=6.5, va="center", color="white", clip_on=True)


def _mark_failures(axes: Axes, episode: Episode, place: dict[int, int], cut: tuple[float, float]) -> None:
    """Crosses where nodes failed; at the left edge with words where that is cut off."""
    shown_s, silent = cut
    for one in episode.failures:
        if one.node not in place:
            continue
        at = one.at_s - episode.began_s
        axes.plot([max(at, shown_s) * 1e3], [place[one.node]], "x", color=FAILED, ms=6, mew=2, clip_on=False, zorder=9)
        if at < shown_s:
            words = f"  {HOW[one.how]} {(silent - at) * 1e3:,.0f} ms before it was noticed"
            axes.text(shown_s * 1e3, place[one.node], words, fontsize=7, va="center", color=FAILED, zorder=9)


def title(nodes: int) -> str:
    """Of a whole picture."""
    return f"Recoveries of a training on {nodes} processes"


def draw(directory: RunDirectory, episodes: Sequence[Episode], head: str) -> list[Path]:
    """The picture's files; none where nothing was recovered."""
    if not episodes:
        return []
    shown = episodes[:MOST]
    more = f", the first {MOST} of {len(episodes)}" if len(episodes) > MOST else ""
    figure = recoveries_figure(shown, f"{head}{more}")
    svg, png = directory.text(f"{NAME}.svg", svg_text(figure)), directory.binary(f"{NAME}.png", png_bytes(figure))
    return [svg, png]


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Draws the recoveries of a run's folder into it, or into `--out`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.elastic.pictures", description=__doc__)
    parser.add_argument("run_dir", type=Path, help="a folder of bayplan train experiment=elastic")
    parser.add_argument("--out", type=Path, help=f"the folder for {NAME}.svg and .png; default: the run's own")
    parser.add_argument("--first", type=int, default=1, help="the first recovery to be drawn, from 1")
    told = parser.parse_args(arguments)
    episodes = episodes_of(read_events(told.run_dir))
    if not episodes:
        raise InvalidInput(f"{told.run_dir} has no recovery that came to a step: let a process fail, as in kills=1@3")
    if not 1 <= told.first <= len(episodes):
        raise InvalidInput(f"--first is {told.first}, but there are {len(episodes)} recoveries: count from 1")
    directory = open_run_directory(NAME, str(told.out or told.run_dir))
    count = len(episodes[0].attempts[0].before)
    for path in draw(directory, episodes[told.first - 1 :], title(count)):
        print(f"written to {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
