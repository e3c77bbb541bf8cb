"""The cache notices every change that can matter to a value, and none that cannot."""

import re
from pathlib import Path

import pytest

from experiments.reproduction.sources import (
    ROOT,
    _imports,
    _native_digest,
    _tree,
    _tree_digest,
    closure,
    code_digest,
    files_digest,
)
from solvers.ir.errors import InvalidInput


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """experiments.figure imports solvers.a at its top and solvers.b inside a function; names solvers.c in a string."""
    files = {
        "experiments/__init__.py": "",
        "experiments/figure.py": 'from solvers import a\nN = {"c": "solvers.c:C"}\ndef f():\n    import solvers.b\n',
        "solvers/__init__.py": "",
        "solvers/a.py": '"""About a."""\nimport torch\nfrom .deep import thing\nVALUE = 1\n',
        "solvers/b.py": "VALUE = 2\n",
        "solvers/c.py": "class C: ...\n",
        "solvers/deep/__init__.py": "from .thing import x\n",
        "solvers/deep/thing.py": "x = 1\n",
        "solvers/unrelated.py": "y = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def digest(root: Path) -> str:
    for cached in (_imports, _tree, _tree_digest, _native_digest, code_digest):
        cached.cache_clear()
    return code_digest("experiments.figure", root)


def test_imports_are_followed_lazy_ones_and_the_registry_too(tree: Path) -> None:
    deep = {"solvers.deep", "solvers.deep.thing"}
    expected = {"experiments", "experiments.figure", "solvers", "solvers.a", "solvers.b", "solvers.c", *deep}
    assert set(closure("experiments.figure", tree)) == expected


@pytest.mark.parametrize("name", ["experiments/figure", "solvers/a", "solvers/b", "solvers/c", "solvers/deep/thing"])
def test_changed_code_is_noticed(tree: Path, name: str) -> None:
    before = digest(tree)
    file = tree / f"{name}.py"
    file.write_text(file.read_text() + "\nmore = 1\n")
    assert digest(tree) != before


def test_the_choice_of_an_engine_depends_on_every_engine(tree: Path) -> None:
    engines = tree / "solvers" / "engines"
    engines.mkdir()
    for name in ("__init__", "choice", "cbc"):
        (engines / f"{name}.py").write_text("")
    (tree / "experiments" / "figure.py").write_text("from solvers.engines.choice import solve\n")
    before = digest(tree)
    (engines / "cbc.py").write_text("gap = 1\n")
    assert digest(tree) != before


REGISTRY = 'KINDS = {"a": "solvers.ir.types:A", "make": "solvers.maker:make"}\n'


def with_registry(tree: Path, user: str, text: str) -> set[str]:
    """The closure where `solvers.ir` looks types up in a registry that also names `solvers.maker`."""
    files = {
        "solvers/ir/__init__.py": "from solvers.kinds import KINDS\n",
        "solvers/ir/types.py": "class A: ...\n",
        "solvers/kinds.py": REGISTRY,
        "solvers/maker.py": "def make(): ...\n",
        "solvers/room/__init__.py": "from solvers.room.offered import simulate\n",
        "solvers/room/offered.py": "from solvers.kinds import KINDS\n",
        "experiments/figure.py": "import solvers.ir\n",
        user: text,
    }
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)
    digest(tree)
    return set(closure("experiments.figure", tree))


@pytest.mark.parametrize(
    ("user", "text", "opened"),
    [
        ("experiments/other.py", "", False),
        ("experiments/figure.py", "import solvers.ir, solvers.room\n", False),
        (
            "experiments/figure.py",
            "from solvers.room import simulate\nfrom solvers.room.offered import simulate\n",
            True,
        ),
        ("experiments/figure.py", "from solvers.kinds import KINDS\n", True),
        ("solvers/a.py", "VALUE = 1\n", False),
    ],
)
def test_the_registry_leads_to_types_unless_somebody_asks_it_for_more(
    tree: Path, user: str, text: str, opened: bool
) -> None:
    found = with_registry(tree, user, text)
    assert {"solvers.kinds", "solvers.ir.types"} <= found
    assert ("solvers.maker" in found) == opened


def test_the_room_of_types_asks_the_registry_for_types_only() -> None:
    """What `closure` takes for granted."""
    asked = [
        set(re.findall(r"KINDS\[[^]]*\]\.(\w+)", path.read_text())) for path in (ROOT / "solvers" / "ir").glob("*.py")
    ]
    assert set().union(*asked) == {"problem", "plan"}


def test_native_sources_count_where_something_runs(tree: Path) -> None:
    (tree / "csrc/step").mkdir(parents=True)
    source = tree / "csrc/step/a.cpp"
    source.write_text("int a;")
    before = digest(tree)
    source.write_text("int b;")
    assert digest(tree) == before, "nothing here runs native code"
    (tree / "runtime").mkdir()
    (tree / "runtime/__init__.py").write_text("")
    (tree / "solvers/a.py").write_text("import runtime\n")
    runs = digest(tree)
    source.write_text("int c;")
    assert digest(tree) != runs


def test_words_layout_and_strangers_do_not_count(tree: Path) -> None:
    before = digest(tree)
    (tree / "solvers/a.py").write_text(
        '"""Other words."""\n\n\nimport torch  # why\nfrom .deep import thing\nVALUE = (1)\n'
    )
    (tree / "solvers/unrelated.py").write_text("y = 2\n")
    assert digest(tree) == before


def test_the_framework_and_libraries_are_not_part_of_it() -> None:
    names = set(closure("tests.experiments.reproduction.fakes", ROOT))
    assert "solvers.engines.search" in names
    assert not any(name.startswith(("experiments.reproduction", "omegaconf")) for name in names)


def test_files_count_with_their_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("1")
    first = files_digest(["*.json"], tmp_path)
    (tmp_path / "a.json").write_text("2")
    second = files_digest(["*.json"], tmp_path)
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    assert len({first, second, files_digest(["*.json"], tmp_path)}) == 3


def test_what_is_absent_is_told() -> None:
    with pytest.raises(InvalidInput, match=r"no module experiments\.nowhere"):
        code_digest("experiments.nowhere")
    with pytest.raises(InvalidInput, match="no file matches"):
        files_digest(["conf/none-*.json"])
