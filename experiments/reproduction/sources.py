"""What a result was computed from: a hash of our modules behind a compute function, and of the files it reads.

Code counts as its syntax tree without docstrings, so that comments, layout and words do not spoil a cache. Followed
are imports at any depth of a module, lazy ones too, and strings of the form `solvers.room:Class` (registries). What
runs on a simulated device depends on the native sources as well. Libraries from outside and the framework itself are
not part of it.
"""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from solvers.ir.codec import read_text
from solvers.ir.errors import InvalidInput

ROOT = Path(__file__).resolve().parents[2]
OURS = ("solvers", "runtime", "experiments", "tests")
FRAMEWORK = "experiments.reproduction"
REGISTRY, TYPES = "solvers.kinds", "solvers.ir"
"""The registry of kinds, and the room that looks its own types up there and nothing else: for that room alone the
registry leads nowhere else, or every result would depend on every solver."""
NATIVE, NATIVE_USERS = ("csrc/**/*.cpp", "csrc/**/*.h"), "runtime"
CHOICE, ENGINES = "solvers.engines.choice", "solvers.engines"
"""The choice imports an engine by a name that is known only then: whatever reaches it depends on every engine."""
LAZY = re.compile(r"((?:solvers|runtime|experiments|tests)(?:\.\w+)*):\w+")


@cache
def code_digest(module: str, root: Path = ROOT) -> str:
    """The hash of a module's code and of everything of ours that it imports, transitively."""
    modules = closure(module, root)
    lines = [f"{name} {_tree_digest(path)}" for name, path in sorted(modules.items())]
    if any(_within(name, NATIVE_USERS) for name in modules):
        lines.append(f"native {_native_digest(root)}")
    return _digest("\n".join(lines))


def closure(module: str, root: Path = ROOT) -> dict[str, Path]:
    """Module name → file, of the module and all of ours that it imports; raises `InvalidInput` if it is absent."""
    if _file_of(module, root) is None:
        raise InvalidInput(f"there is no module {module}: correct `compute`, or write it")
    found: dict[str, Path] = {}
    _follow([module], found, root, followed=False)
    if REGISTRY in found and _asked(module, found, root):
        _follow(list(_imports(found[REGISTRY], REGISTRY, root)), found, root, followed=True)
    return found


def _follow(waiting: list[str], found: dict[str, Path], root: Path, followed: bool) -> None:
    """Add what the waiting modules reach; `followed`: the registry has been opened to all that it names."""
    while waiting:
        name = waiting.pop()
        path = _file_of(name, root)
        if path is None or name in found or _within(name, FRAMEWORK):
            continue
        found[name] = path
        reached = _imports(path, name, root) + (_rooms(ENGINES, root) if name == CHOICE else ())
        closed = name == REGISTRY and not followed
        waiting += [one for one in reached if _within(one, TYPES)] if closed else reached
        waiting += [name.rpartition(".")[0]] if "." in name else []


def files_digest(patterns: Iterable[str], root: Path = ROOT) -> str:
    """The hash of the files that the globs match, names included; raises `InvalidInput` where one matches nothing."""
    lines = []
    for pattern in sorted(patterns):
        paths = sorted(path for path in root.glob(pattern) if path.is_file())
        if not paths:
            raise InvalidInput(f"no file matches {pattern!r}: correct the name in the entry, or write the file")
        lines += [f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in paths]
    return _digest("\n".join(lines))


def _asked(module: str, found: dict[str, Path], root: Path) -> bool:
    """Whether something here may look up in the registry what is no type.

    A module that only its own package imports is offered there, and used by nobody here.
    """
    imports = {name: _imports(path, name, root) for name, path in found.items()}
    users = [name for name, reached in imports.items() if REGISTRY in reached and not _within(name, TYPES)]
    return any(
        user == module or any(user in reached for name, reached in imports.items() if name != user.rpartition(".")[0])
        for user in users
    )


@cache
def _native_digest(root: Path) -> str:
    """The hash of the native sources; of nothing where the folder has none."""
    return files_digest([pattern for pattern in NATIVE if any(root.glob(pattern))], root)


def _rooms(package: str, root: Path) -> tuple[str, ...]:
    """All modules of a package's own folder."""
    return tuple(f"{package}.{path.stem}" for path in sorted(root.joinpath(*package.split(".")).glob("*.py")))


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _file_of(module: str, root: Path) -> Path | None:
    if module.partition(".")[0] not in OURS:
        return None
    place = root.joinpath(*module.split("."))
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


@cache
def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(read_text(path))
    except SyntaxError as error:
        raise InvalidInput(f"{path.name} line {error.lineno} is no Python ({error.msg}): repair it") from error


@cache
def _tree_digest(path: Path) -> str:
    tree = ast.parse(read_text(path))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            node.body = body[1:]  # type: ignore[attr-defined]
    return _digest(ast.dump(tree))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def _imports(path: Path, module: str, root: Path) -> tuple[str, ...]:
    """Names of modules that may be meant; those that do not exist are dropped later."""
    return tuple(dict.fromkeys(_named(_tree(path), module, root)))


def _named(tree: ast.Module, module: str, root: Path) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module, root)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            lazy = LAZY.fullmatch(node.value)
            if lazy:
                yield lazy[1]


def _absolute(node: ast.ImportFrom, module: str, root: Path) -> str:
    if not node.level:
        return node.module or ""
    path = _file_of(module, root)
    package = module.split(".") if path is not None and path.name == "__init__.py" else module.split(".")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *(node.module or "").split(".")]).rstrip(".")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
