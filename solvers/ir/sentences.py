"""Turns a decoder's complaint into one sentence: the place, the value found there, what is needed, the remedy."""

import json
import re
from typing import Any

import msgspec

_PATH = re.compile(r" - at `(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]")
SHOWN = 60
"""Longest value that a sentence quotes."""


def sentence(error: msgspec.ValidationError, raw: Any, kind: type[Any]) -> str:
    """What is wrong with `raw`, which was to become a `kind`, in one line."""
    text = one_line(error)
    found = _PATH.search(text)
    path = found["path"].removeprefix("$") if found else ""
    what = text[: found.start()] if found else text
    place = path.removeprefix(".") or "the top level"
    if what.startswith("Expected "):
        needed = what.removeprefix("Expected ").partition(", got ")[0]
        return f"{place} is {_value_at(raw, path)}, but {needed} is needed here: correct it"
    if what.startswith("Invalid enum value ") and (words := _words_at(kind, path)):
        return f"{place} is {_value_at(raw, path)}: choose of {', '.join(words)}"
    if what.startswith("Object contains unknown field "):
        return f"{place} has the unknown key {what.rsplit(' ', 1)[1]}: remove it or correct its name"
    if what.startswith("Object missing required field "):
        return f"{place} lacks the key {what.rsplit(' ', 1)[1]}: add it"
    return f"{place}: {what}" if path else what


def one_line(error: BaseException) -> str:
    """The error's text without line ends."""
    return " ".join(str(error).split())


def _words_at(kind: type[Any], path: str) -> list[str]:
    """The words that are allowed there, as written in a file; empty where the path leads to no such choice."""
    known: msgspec.inspect.Type | None = msgspec.inspect.type_info(kind)
    for step in _STEP.finditer(path):
        if isinstance(known, msgspec.inspect.StructType):
            known = next((field.type for field in known.fields if field.encode_name == step["key"]), None)
        elif isinstance(known, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
            known = known.item_type
        else:
            return []
    if isinstance(known, msgspec.inspect.LiteralType):
        return [str(word) for word in known.values]
    return [str(member.value) for member in known.cls] if isinstance(known, msgspec.inspect.EnumType) else []


def _value_at(raw: Any, path: str) -> str:
    """The offending value as JSON, shortened; a description where the path does not lead to one."""
    value = raw
    for step in _STEP.finditer(path):
        try:
            value = value[step["key"]] if step["key"] is not None else value[int(step["index"])]
        except (KeyError, IndexError, TypeError):
            return "wrong"
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else f"an array of length {len(value)}"
    text = json.dumps(value, ensure_ascii=False, default=lambda other: type(other).__name__)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
