"""Three pages in headless Chromium as wide as a screen and as a telephone: nothing overflows, nothing is asked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.reporting.page import page_of
from tests.experiments.commands.console import call
from tests.experiments.reporting.chromium import Browser, browser, chromium
from tests.experiments.reporting.folders import kept_sweep, planned_run

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="there is no Chromium: apt-get install chromium"),
]
HEAD = '<meta name="viewport" content="width=device-width">'
WIDTHS = (1280, 400)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pipeline as its run wrote it; a training and a sweep of trainings, remade from kept rows."""
    folder = tmp_path_factory.mktemp("runs")
    done = call("compare", "experiment=lynx", "plots=false", f"run_dir={folder / 'pipeline'}")
    assert done.code == 0, done.err
    for place in (planned_run(folder / "training"), kept_sweep(folder / "sweep")):
        (place / "report.html").write_text(page_of(place))
    return {name: folder / name / "report.html" for name in SAID}


SAID = {
    "pipeline": ["Throughput (samples/s): more is better", "bayplan: stage 3", "stage 0", "infeasible"],
    "training": ["sim out of memory", "waits for memory", "no violations", "budget 150.00 B", "Training loss"],
    "sweep": ["infeasible", "Step time over unlimited", "28 cells"],
}
"""What a reader must find on each page."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SAID)
def test_a_page_at_a_width(one: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    seen = one.open(pages[name], width)
    assert seen.scroll_width <= width
    assert seen.overflowing == []
    assert seen.requests == [pages[name].resolve().as_uri()]
    assert seen.complaints == []
    for text in SAID[name]:
        assert text in seen.text, text


def test_a_page_that_overflows_asks_and_complains_is_noticed(one: Browser, tmp_path: Path) -> None:
    """What the test above would see of a bad page."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        HEAD + '<body><div style="width: 900px">wide</div><img src="missing.png"><script>console.log(1)</script>'
    )
    seen = one.open(bad, 400)
    assert seen.scroll_width > 400 and seen.overflowing
    assert len(seen.requests) == 2 and seen.complaints
