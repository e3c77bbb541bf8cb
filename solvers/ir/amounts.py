"""Amounts as people write them on a command line, exact to the byte."""

import re
from decimal import Decimal

from solvers.ir.errors import InvalidInput
from solvers.ir.fields import LARGEST

UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
}
"""Bytes of each suffix: `GB` is 10⁹, `GiB` is 2³⁰."""
SHORT = frozenset("kmgt")
"""Suffixes that say neither a power of 1000 nor one of 1024."""
MOST_PERCENT = 100
"""A budget without a unit up to here was meant as a percentage."""
BYTES_HELP = "bytes, perhaps with a suffix (KB MB GB TB: powers of 1000; KiB MiB GiB TiB: powers of 1024)"


def parse_bytes(text: str, place: str, example: str = "as in 8GiB") -> int:
    """A number of bytes such as `8589934592`, `8GiB` or `1.5GB`, rounded down; raises `InvalidInput`."""
    found = re.fullmatch(r"(\d{1,99}(?:\.\d{1,18})?)\s*([A-Za-z]*)", text.strip(), re.ASCII)
    units = {name.lower(): size for name, size in UNITS.items()}
    if found and found[2].lower() in SHORT:
        raise InvalidInput(f"{place} is {text!r}: did you mean {found[1]}{found[2].upper()}iB? give {BYTES_HELP}")
    if not found or (found[2] and found[2].lower() not in units):
        raise InvalidInput(f"{place} is {text!r}: give {BYTES_HELP}, {example}")
    if "." in found[1] and not found[2]:
        raise InvalidInput(f"{place} is {text!r}, which is not a whole number of bytes: give whole bytes or a suffix")
    amount = int(Decimal(found[1]) * units[found[2].lower() or "b"])
    if amount > LARGEST:
        raise InvalidInput(f"{place} is {text!r}, which is too large, more than 2^53 bytes: give less")
    return amount


def parse_budget(text: str, peak_bytes: int, place: str = "--budget") -> int:
    """A number of bytes, or a percentage of `peak_bytes`, rounded down; raises `InvalidInput`.

    A number without a unit that no training fits in, such as `55` or `0.55`, is taken for a forgotten one.
    """
    share = re.fullmatch(r"(\d{1,6}(?:\.\d{1,12})?)\s*%", text.strip(), re.ASCII)
    if share:
        return int(Decimal(share[1]) * peak_bytes / 100)
    bare = re.fullmatch(r"\d{1,3}(?:\.\d{1,12})?", text.strip(), re.ASCII)
    if bare and 0 < Decimal(bare[0]) <= MOST_PERCENT:
        percent = Decimal(bare[0]) * (100 if "." in bare[0] and Decimal(bare[0]) < 1 else 1)
        raise InvalidInput(
            f"{place} is {text!r}, a number without a unit: write {percent.normalize():f}% for a share, or bytes with "
            "a suffix, as in 8GiB"
        )
    return parse_bytes(text, place, "as in 8GiB, or a percentage, as in 55%")


def show_bytes(amount: int | None) -> str:
    """Exact bytes, and a size that one can read: `8589934592 bytes (8.00 GiB)`."""
    if amount is None:
        return "unknown"
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if amount >= UNITS[unit]:
            return f"{amount} bytes ({amount / UNITS[unit]:.2f} {unit})"
    return f"{amount} bytes"
