"""One rule for all calls of one signature: the shortest sum of sizes that gives every measured number, or the nearest.

A rule is exact where one or two terms, constants or small fractions of sizes, give what was measured of every call.
What libraries take for blocks of their own (oneDNN's convolutions and half-precision products) is no such sum: the rule
then keeps the measured calls, and estimates others by the term that is least far off.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

from runtime.device.temporaries import Rule, Term

GRANULE_BYTES = 512
FRACTIONS = sorted({Fraction(a, b) for a in range(1, 9) for b in (1, 2, 3, 4, 8)})
"""What a temporary's size is of an operand's where it holds one number for each element, or for some."""

FEW_BLOCKS = tuple(range(GRANULE_BYTES, 17 * GRANULE_BYTES, GRANULE_BYTES))
"""Buffers of a size of their own beside those that grow."""
PRODUCTS = ("mm: BFloat16", "bmm: BFloat16")
OTHERS, FEW = ("addmm: BFloat16", "convolution: BFloat16", "convolution_backward: BFloat16"), 6
"""What else is tried, and how many of its largest calls are kept."""
SMALL = 1 << 27
"""Multiplications of products in half precision below which no call is kept: device sim tries these by itself."""
GROWS = 4
"""Where temporaries are within this factor of a part of some size, they are taken to grow with it."""


class Call(NamedTuple):
    """The sizes of a kernel's tensors in bytes, arguments first, and what it took beside its results."""

    sizes: tuple[int, ...]
    took_bytes: int


def whole_blocks(size: Fraction | int) -> int:
    """The size rounded down to bytes and up to whole blocks, as the extension does."""
    return -(-int(size) // GRANULE_BYTES) * GRANULE_BYTES


def takes(terms: Iterable[Term], sizes: Sequence[int]) -> int:
    """What the terms say of a call of these sizes."""
    return sum(
        whole_blocks(Fraction(term.factor, term.divisor) * (1 if term.place is None else sizes[term.place]))
        for term in terms
    )


def rule_of(calls: Iterable[Call]) -> Rule:
    """The rule of all measured calls of one signature; of those of the same sizes the most that was taken counts."""
    most: dict[tuple[int, ...], int] = {}
    for sizes, took in calls:
        most[sizes] = max(took, most.get(sizes, 0))
    known = [Call(sizes, took) for sizes, took in sorted(most.items())]
    terms = _exact_terms(known)
    if terms is not None:
        return Rule(terms, len(known), 0)
    terms = _nearest_terms(known)
    farthest = max(_error(terms, call) for call in known)
    return Rule(terms, len(known), farthest, tuple((call.sizes, call.took_bytes) for call in known))


def without_tried(signature: str, rule: Rule) -> Rule:
    """The rule without measured calls that are tried where they are met (csrc/sim/own_kernels.h), but large ones."""

    def made(sizes: Sequence[int]) -> int:
        *_, result, _rows, inner, _columns = sizes
        return result // 2 * inner

    exact = rule.exact
    if exact and signature.startswith(PRODUCTS):
        least = min(SMALL, max(made(sizes) for sizes, _ in exact))
        exact = tuple((sizes, took) for sizes, took in exact if made(sizes) >= least)
    elif signature.startswith(OTHERS):
        exact = tuple(sorted(sorted(exact, key=lambda one: sum(one[0]))[-FEW:]))
    if exact == rule.exact:
        return rule
    farthest = max(_error(rule.terms, Call(*one)) for one in exact)
    return rule._replace(exact=exact, farthest_bytes=farthest)


def _exact_terms(known: Sequence[Call]) -> tuple[Term, ...] | None:
    """No term, one or two that give every call's number; one call alone says nothing about how it grows."""
    if all(call.took_bytes == 0 for call in known):
        return ()
    if len(known) < 2:
        return None
    largest = max(known, key=lambda call: call.took_bytes)
    candidates = [term for term in _terms(known) if takes((term,), largest.sizes) <= largest.took_bytes]
    for count in (1, 2):
        for terms in combinations(candidates, count):
            if takes(terms, largest.sizes) == largest.took_bytes and _fits(terms, known):
                return terms
    return None


def _terms(known: Sequence[Call]) -> list[Term]:
    """What some call took as a whole, and parts of each size that some call has, whole ones first."""
    places = [place for place in range(len(known[0].sizes)) if any(call.sizes[place] for call in known)]
    ordered = sorted(FRACTIONS, key=lambda part: (part.denominator, part))
    constants = sorted({call.took_bytes for call in known if call.took_bytes} | set(FEW_BLOCKS))
    parts = [Term(place, part.numerator, part.denominator) for part in ordered for place in places]
    return [*(Term(None, constant) for constant in constants), *parts]


def _fits(terms: Sequence[Term], known: Sequence[Call]) -> bool:
    return all(takes(terms, call.sizes) == call.took_bytes for call in known)


def _nearest_terms(known: Sequence[Call]) -> tuple[Term, ...]:
    """A part of one size that is never off by more than `GROWS`, the closest; else the most that any call took.

    Products of blocks take a bounded buffer, however large they are; what is as large as a tensor grows with it. The
    part is that of the call that took most, since small ones are mostly padding.
    """
    largest = max(known, key=lambda call: call.took_bytes)
    taking = [call for call in known if call.took_bytes]
    best: tuple[Term, ...] = (Term(None, largest.took_bytes),)
    least = min(Fraction(GROWS), _worst_ratio(best, taking))
    if len(taking) < 2:
        return best
    for place, size in enumerate(largest.sizes):
        if not all(call.sizes[place] for call in taking):
            continue
        part = Fraction(largest.took_bytes, size).limit_denominator(1000)
        terms = (Term(place, part.numerator, part.denominator),)
        ratio = _worst_ratio(terms, taking)
        if ratio < least:
            best, least = terms, ratio
    return best


def _worst_ratio(terms: Sequence[Term], known: Sequence[Call]) -> Fraction:
    """The largest factor between what the terms say and what a call took, either way."""
    ratios = [Fraction(takes(terms, call.sizes) or 1, call.took_bytes) for call in known]
    return max(max(ratio, 1 / ratio) for ratio in ratios)


def _error(terms: Sequence[Term], call: Call) -> int:
    return abs(takes(terms, call.sizes) - call.took_bytes)
