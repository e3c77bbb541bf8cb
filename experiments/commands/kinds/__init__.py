"""The kinds of problems on the command line: a file or folder named like the kind holds its `FACE`, if it has one."""

from importlib import import_module
from pathlib import Path

from experiments.commands.kinds.face import Face
from solvers.kinds import KINDS

GRAPH = "graph"
"""The graph of a step itself, which `make` writes as if it were a problem."""


def face_of(kind: str) -> Face:
    """How a kind looks on the command line; the plain face where nothing is known of it."""
    module = kind.replace("-", "_")
    here = Path(__file__).parent
    if (kind in KINDS or kind == GRAPH) and ((here / module).is_dir() or (here / f"{module}.py").is_file()):
        face: Face = import_module(f"{__name__}.{module}").FACE
        return face
    return Face()


def faces() -> dict[str, Face]:
    """The faces of all kinds, in the order of `solvers.kinds`."""
    return {kind: face_of(kind) for kind in KINDS}
