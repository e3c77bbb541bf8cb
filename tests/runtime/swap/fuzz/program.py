"""Random training programs: what is trained, how, and what changes from one iteration to the next.

A program is data: its text is Python that builds it again, so a failure is reproduced by pasting it, and made smaller
by leaving things out.
"""

import dataclasses
import random
from dataclasses import dataclass
from typing import Literal, get_args

Part = Literal[
    "linear",
    "norm",
    "batch norm",
    "conv",
    "attention",
    "softmax",
    "recurrent",
    "lstm",
    "dropout",
    "gelu",
    "relu_",
    "scale_",
    "residual",
    "gather",
    "strided",
    "lookup",
    "stack",
    "halves",
    "checkpoint",
    "reentrant",
    "function",
    "masked",
]
"""A layer on hidden states of shape (rows, length, width); a name with `_` works in place."""

Change = Literal[
    "validation",
    "skip",
    "overflow",
    "branch",
    "raise in forward",
    "raise in backward",
    "twice",
    "penalty",
    "keep",
    "log",
    "copy",
    "unzeroed",
]
"""What is different in an iteration.

`validation`: a forward pass without gradients follows; `skip`: no optimizer step; `overflow`: infinite gradients, so
that a GradScaler skips; `branch`: some parts are left out; `raise …`: an exception in the middle, then the next
iteration; `twice`: backward over the same graph again; `penalty`: a gradient penalty, so backward through backward;
`keep`: activations live on for some iterations; `log`: values are read in the middle; `copy`: the model is deep-copied
in the middle; `unzeroed`: gradients are added to the last iteration's.
"""

Optimizer = Literal[
    "sgd", "momentum", "adamw", "adamw foreach", "adamw fused", "adagrad", "rmsprop", "nadam foreach", "two"
]
"""`two`: SGD for the embedding, AdamW for the rest."""

Beside = Literal["", "borrows", "records", "makes", "new streams", "thread", "average"]
"""What other streams do at each part of the model, or after each step (`average`).

They read activations that the program keeps until they have, or a copy that it lets go; make parts of the loss; let
another thread read; average parameters.
"""

PARTS: tuple[Part, ...] = get_args(Part)
CHANGES: tuple[Change, ...] = get_args(Change)
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)
BESIDE: tuple[Beside, ...] = get_args(Beside)
ONCE_ONLY = ("attention", "checkpoint", "reentrant", "recurrent", "lstm")
"""Parts that PyTorch cannot differentiate twice (on a CPU), or whose graph it frees."""
ITERATIONS = 14


@dataclass(frozen=True)
class Turn:
    """One iteration: the size of its batch, and what is different in it."""

    rows: int
    length: int
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Program:
    """A training loop; `seed` decides weights, data and dropout.

    `hooked`: hooks rewrite gradients; `prefetch`: batches come in on a side stream; `watched`: gradients and parameters
    are read after every iteration, and only after the last one otherwise; `beside` is done on other streams; `inside`:
    each parameter has an optimizer of its own, which steps inside the backward pass (of the `two`, AdamW's only).
    """

    seed: int
    parts: tuple[Part, ...]
    turns: tuple[Turn, ...]
    width: int = 16
    optimizer: Optimizer = "adamw"
    accumulation: int = 1
    tied: bool = False
    clipped: bool = False
    scaled: bool = False
    hooked: bool = False
    prefetch: bool = False
    watched: bool = True
    beside: Beside = ""
    inside: bool = False

    def twice_differentiable(self) -> bool:
        """Whether `twice` and `penalty` can be."""
        return not set(self.parts) & set(ONCE_ONLY)


def draw_program(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    parts = tuple(rng.choice(PARTS) for _ in range(rng.randint(3, 9)))
    rows, length = rng.choice((4, 8)), rng.choice((16, 32))
    program = Program(
        seed=seed,
        parts=parts,
        turns=(),
        width=rng.choice((16, 32)),
        optimizer=rng.choice(OPTIMIZERS),
        accumulation=rng.choice((1, 1, 1, 2, 3)),
        tied=rng.random() < 0.5,
        clipped=rng.random() < 0.4,
        scaled=rng.random() < 0.3,
        hooked=rng.random() < 0.2,
        prefetch=rng.random() < 0.2,
        watched=rng.random() < 0.5,
    )
    return dataclasses.replace(program, turns=_turns(rng, program, rows, length))


def draw_beside(seed: int) -> Program:
    """The program of a seed with work on other streams, or with optimizers inside the backward pass, or both."""
    rng = random.Random(f"beside {seed}")  # not the numbers that drew the program
    program = draw_program(seed)
    beside, inside = rng.choice(BESIDE), rng.random() < 0.5
    if beside == "" and not inside:
        beside = "makes"
    program = dataclasses.replace(program, beside=beside, inside=inside, prefetch=rng.random() < 0.5)
    if not inside:
        return program
    turns = tuple(
        dataclasses.replace(turn, changes=tuple(one for one in turn.changes if one not in NOT_INSIDE))
        for turn in program.turns
    )
    return dataclasses.replace(program, turns=turns, accumulation=1, clipped=False, scaled=False)


NOT_INSIDE = ("twice", "penalty", "overflow", "skip")
"""What means nothing, or another thing, where a parameter changes as soon as its gradient is there."""


def _turns(rng: random.Random, program: Program, rows: int, length: int) -> tuple[Turn, ...]:
    """Mostly alike; a third of them differ in something, and at times the batch's size changes for good."""
    possible = [change for change in CHANGES if _possible(program, change)]
    turns = []
    for _ in range(ITERATIONS):
        if rng.random() < 0.06:
            rows, length = rng.choice((4, 8)), rng.choice((16, 32))
        odd = rng.random() < 0.1
        changes = tuple(rng.sample(possible, rng.choice((1, 1, 2)))) if rng.random() < 0.3 else ()
        turns.append(Turn(max(2, rows // 2) if odd else rows, length + 3 if odd else length, changes))
    return tuple(turns)


def _possible(program: Program, change: Change) -> bool:
    if change in ("twice", "penalty"):
        return program.twice_differentiable()
    return change != "overflow" or program.scaled
