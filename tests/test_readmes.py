"""All pages: lines that fit, links that lead somewhere, blocks that a test runs, tables that are the kept results."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from solvers.planner import SOLVERS
from tests.readmes import FENCE, ROOT, pages

PAGES = [path.relative_to(ROOT).as_posix() for path in pages()]
READMES = [name for name in PAGES if name.endswith("README.md")]
WIDTH = 120
WIDE = ("|", "<!--", "http")
"""How lines begin that may be longer: rows of tables, and addresses on a line of their own."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose_of(text: str) -> str:
    """A page without its fenced blocks, where brackets are code."""
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """What a heading can be linked by: small letters, no punctuation, hyphens for spaces."""
    titles = re.findall(r"^#+ (.+)$", prose_of(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def shown_tables(name: str) -> Iterator[tuple[str, str]]:
    yield from re.findall(r"<!-- (experiments/results/\S+) -->\n(.*?)\n<!-- end of \1 -->", text_of(name), re.DOTALL)


def test_pages_are_found() -> None:
    assert {"README.md", "runtime/swap/README.md", "solvers/ir/formats.md", "conf/README.md"} <= set(PAGES)


@pytest.mark.parametrize("name", [name for name in PAGES if name != "CHANGELOG.md"])
def test_lines_fit(name: str) -> None:
    lines = text_of(name).splitlines()
    wide = [number for number, line in enumerate(lines, 1) if len(line) > WIDTH and not line.startswith(WIDE)]
    assert wide == [], f"lines of {name} with more than {WIDTH} characters: break them"


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files_and_headings(name: str) -> None:
    text = text_of(name)
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)", prose_of(text)):
        file = (ROOT / name).parent / target if target else ROOT / name
        assert file.exists(), f"{name} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"{name} links to {target}#{anchor}: no heading"


@pytest.mark.parametrize("name", READMES)
def test_blocks_that_can_run_have_a_test(name: str) -> None:
    """Each README's blocks of shell and Python are run by tests/…/test_readme.py, in the place that mirrors it."""
    languages = {language for language, _ in FENCE.findall(text_of(name))}
    assert languages <= {"bash", "python", "text", "yaml"}, f"{name}: say what language each block is in"
    test = ROOT / "tests" / Path(name).parent / "test_readme.py"
    for language in languages & {"bash", "python"}:
        assert test.exists() and language in test.read_text(encoding="utf-8"), f"{name} has {language}, but {test} not"


def test_the_tables_shown_are_those_of_the_kept_results() -> None:
    """Word by word: pages break long lines below a table."""
    found = {place for name in READMES for place, _ in shown_tables(name)}
    assert found == {
        "experiments/results/demo/table.md",
        "experiments/results/demo_sweep/table.md",
        "experiments/results/ft_32/table.md",
        "experiments/results/lynx/table.md",
        "experiments/results/ranks/large.md",
        "experiments/results/shapes/table.md",
        "experiments/results/stability/table.md",
        "experiments/results/tables/lynx/lynx-figure-14.md",
    }
    for name in READMES:
        for place, text in shown_tables(name):
            assert " ".join(text.split()) in " ".join(text_of(place).split()), f"{name} shows another {place}"


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_every_solver_is_in_the_readme_of_its_room(name: str) -> None:
    folder = (ROOT / SOLVERS[name].target.partition(":")[0].replace(".", "/")).with_suffix("")
    room = next(place for place in (folder, *folder.parents) if (place / "README.md").exists())
    page = (room / "README.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page, f"{room.relative_to(ROOT)}/README.md does not name the solver {name}: add its row"
