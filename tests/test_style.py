"""The house style that a machine can count: lengths, parameters, and files that import each other in a circle."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("solvers", "experiments", "runtime")
Function = ast.FunctionDef | ast.AsyncFunctionDef
MOST_LINES_OF_A_FUNCTION, MOST_LINES_OF_A_FILE, MOST_PARAMETERS = 60, 300, 7
REASON = "One file: "
"""How a file says why it is longer."""
FIRST_LINES = 20
"""Where it says so."""


def files() -> list[Path]:
    """The Python files of the packages."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions() -> Iterator[tuple[str, Function]]:
    """Every function and method as `file:name`."""
    for path in files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, Function):
                yield f"{name_of(path)}:{node.name}", node


def parameters(function: Function) -> list[str]:
    """The names that a caller may give, `self` and `cls` left out."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [one.arg for one in every if one.arg not in ("self", "cls")]


def is_entry(function: Function) -> bool:
    """Whether it computes a table: its keywords are the parameters of a file in conf/table, which lists them."""
    return parameters(function)[:1] == ["cells"] and len(function.args.args) == 1


def test_functions_are_short() -> None:
    long = {
        name
        for name, function in functions()
        if (function.end_lineno or 0) - function.lineno + 1 > MOST_LINES_OF_A_FUNCTION
    }
    assert not long, f"longer than {MOST_LINES_OF_A_FUNCTION} lines, so cut them: {sorted(long)}"


def test_long_files_say_why() -> None:
    native = [path for ending in ("*.cpp", "*.h") for path in (ROOT / "csrc").rglob(ending)]
    texts = {name_of(path): path.read_text(encoding="utf-8").splitlines() for path in [*files(), *native]}
    long = {name for name, lines in texts.items() if len(lines) > MOST_LINES_OF_A_FILE}
    silent = {name for name in long if REASON not in "\n".join(texts[name][:FIRST_LINES])}
    assert not silent, f"longer than {MOST_LINES_OF_A_FILE} lines without {REASON!r} at its begin: {sorted(silent)}"


def test_functions_take_few_parameters() -> None:
    many = {name for name, one in functions() if len(parameters(one)) > MOST_PARAMETERS and not is_entry(one)}
    assert not many, f"more than {MOST_PARAMETERS} parameters, so take a frozen options class: {sorted(many)}"


def test_no_files_import_each_other_in_a_circle() -> None:
    found = {tuple(circle) for circle in circles(imports())}
    assert not found, f"files import each other: {'; '.join(map(' -> '.join, sorted(found)))}"


@pytest.mark.parametrize(
    ("arrows", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}, [["b", "c"]]),
    ],
)
def test_circles_are_found(arrows: dict[str, set[str]], found: list[list[str]]) -> None:
    assert circles(arrows) == found


def imports() -> dict[str, set[str]]:
    """Module → the modules of these packages that it imports anywhere, but for type checking."""
    modules = {_module(path): path for path in files()}
    return {
        module: {name for name in _imported(tree_of(path), module, path, modules) if name in modules} - {module}
        for module, path in modules.items()
    }


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(node: ast.AST, module: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
            base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield inner if inner in modules else base
    for child in ast.iter_child_nodes(node):
        yield from _imported(child, module, path, modules)


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """The sets of modules that all reach each other, each in order of name."""
    reach = {module: _reached(module, arrows) for module in arrows}
    found = {tuple(sorted(other for other in reach[one] if one in reach[other])) for one in arrows if one in reach[one]}
    return [list(circle) for circle in sorted(found)]


def _reached(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """What is reached by one import or more."""
    seen: set[str] = set()
    waiting = list(arrows[start])
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += arrows[module]
    return seen
