"""The cache notices every change that can matter to a value, and none that cannot."""

from pathlib import Path

import pytest

from experiments.reproduction.sources import ROOT, _imports, _tree, _tree_digest, closure, code_digest, files_digest
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
    for cached in (_imports, _tree, _tree_digest, code_digest):
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
