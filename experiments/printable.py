"""Text that commands no terminal, whatever names a file or a model gave it."""

import unicodedata

COMMANDING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of what is no letter: controls (escape sequences), marks that turn the direction of writing or
join letters, lone surrogates, separators of lines and paragraphs."""


def printable(text: str) -> str:
    """The text with such characters written as Python writes them: `\\x1b`, `\\u202e`; line breaks too."""
    if text.isprintable():
        return text
    return "".join(_escaped(letter) if unicodedata.category(letter) in COMMANDING else letter for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
