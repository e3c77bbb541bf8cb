"""What an action of a layout schedule may look like: its lane, pass, data and their bytes (formats.md 11.10)."""

from solvers.ir.layout import LayoutProblem
from solvers.ir.schedule import Action

COMPUTE, IN, OUT, COMM, HOST = "0.compute", "0.in", "0.out", "0.comm", "0.host"
PLACES = {
    "compute": (COMPUTE,),
    "recompute": (COMPUTE,),
    "release": (COMPUTE, IN),
    "swap_out": (OUT,),
    "swap_in": (IN,),
    "load": (IN,),
    "evict": (COMPUTE, OUT),
    "collective_start": (COMM,),
    "update": (COMPUTE, HOST),
}
"""The lanes on which each action may run."""
OF_BLOCKS = ("compute", "recompute", "release", "swap_out", "swap_in")


def number_of(action: Action) -> int:
    """The number of the chunk or block that a well-formed action names first."""
    return int(str(action.data[0]).split(" ")[1])


def form(problem: LayoutProblem, action: Action) -> list[str]:
    """Known actions on their lanes, for a pass that there is, with data of the problem and their bytes."""
    place = f"action {action.id}"
    if action.op is None and (action.do, action.lane) == ("load", COMPUTE):
        known = all(_is_known(problem, name, ("chunk", "buffer")) for name in action.data)
        return [] if action.data and known else [f"{place} loads {list(action.data)}: name chunks and buffers"]
    if action.do not in PLACES:
        return [f"{place} does {action.do}, but a layout schedule has only {', '.join(PLACES)}"]
    if action.lane not in PLACES[action.do]:
        return [f"{place} does {action.do} on lane {action.lane}, but it belongs on {' or '.join(PLACES[action.do])}"]
    if action.op is None or action.op >= 2 * len(problem.blocks):
        return [f"{place} belongs to pass {action.op}, but passes are 0…{2 * len(problem.blocks) - 1}"]
    words = _words(action)
    if len(action.data) != len(words) or not all(map(lambda n, w: _is_known(problem, n, w), action.data, words)):
        told = " and ".join(" or ".join(word) for word in words)
        return [f"{place} names {list(action.data)}, but it is of one {told} of the problem"]
    return _of_block(problem, action) if action.do in OF_BLOCKS else _of_chunk(problem, action)


def _words(action: Action) -> tuple[tuple[str, ...], ...]:
    """What the data of an action may be, one after the other."""
    if action.do in OF_BLOCKS:
        return (("block",),)
    if action.do in ("load", "evict"):
        return (("chunk",), ("buffer",))
    return (("chunk", "gradients"),) if action.do == "collective_start" else (("chunk",),)


def _is_known(problem: LayoutProblem, name: object, words: tuple[str, ...]) -> bool:
    word, _, digits = str(name).partition(" ")
    counts = {"block": len(problem.blocks), "chunk": len(problem.chunks), "gradients": len(problem.chunks)}
    canonical = digits.isdecimal() and str(int(digits)) == digits
    return word in words and canonical and int(digits) < counts.get(word, int(digits) + 1)


def _of_chunk(problem: LayoutProblem, action: Action) -> list[str]:
    """A chunk travels whole; an update moves nothing."""
    size = 0 if action.do == "update" else problem.chunk_bytes
    return [] if action.bytes == size else [f"action {action.id} moves {action.bytes} bytes, but it is of {size}"]


def _of_block(problem: LayoutProblem, action: Action) -> list[str]:
    """Passes are of their own block; forward tells what the block keeps, backward nothing, all else its activations."""
    count, number, at = len(problem.blocks), number_of(action), action.op or 0
    block, found = problem.blocks[number], []
    own = at if at < count else 2 * count - 1 - at
    sizes = {block.activation_bytes}
    if action.do == "compute":
        sizes = {block.activation_bytes, block.input_bytes} if at < count else {0}
    misplaced = (action.do == "recompute" and at < count) or (action.do == "swap_out" and at >= count)
    if misplaced or (action.do in ("compute", "recompute", "swap_out") and own != number):
        found.append(f"action {action.id} is of block {number}, but does {action.do} in pass {at}, of block {own}")
    if action.bytes not in sizes:
        found.append(f"action {action.id} says {action.bytes} bytes, but {action.do} of block {number} has {sizes}")
    return found
