"""Turns a decoder's complaint into one sentence: the place, the value found there, what is needed, the remedy."""

import copy
import json
import re
from typing import Any

import msgspec

_PATH = re.compile(r" - at `(?P<path>[^`]*)`$")
_STEP = re.compile(r'\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]')
_SOME_KEY = "[...]"
"""What the decoder writes for a key of a mapping, whichever it is."""
SHOWN = 60
"""Longest value that a sentence of the decoder quotes."""
QUOTED = 200
"""Longest value that any sentence quotes."""


def quoted(value: object) -> str:
    """A value as Python writes it, cut at `QUOTED` characters: what a file holds may be of any length."""
    text = repr(value[: QUOTED + 1] if isinstance(value, str) else value)
    return text if len(text) <= QUOTED + 2 else f"{text[:QUOTED]}…"


def sentence(error: msgspec.ValidationError, raw: Any, kind: type[Any]) -> str:
    """What is wrong with `raw`, which was to become a `kind`, in one line."""
    text = one_line(error)
    found = _PATH.search(text)
    path = _with_key(found["path"].removeprefix("$"), raw, kind) if found else ""
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


def _with_key(path: str, raw: Any, kind: type[Any]) -> str:
    """The path with the key that the decoder leaves out: the one that it refuses when it is alone in its mapping."""
    head, _, rest = path.partition(_SOME_KEY)
    if _SOME_KEY not in path:
        return path
    alone = copy.deepcopy(raw)
    mapping = _at(alone, head)
    for key, value in tuple(mapping.items()):
        mapping.clear()
        mapping[key] = value
        try:
            msgspec.convert(alone, kind)
        except msgspec.ValidationError:
            return f"{head}[{json.dumps(key, ensure_ascii=False)}]{rest}"
    return path


def _words_at(kind: type[Any], path: str) -> list[str]:
    """The words that are allowed there, as written in a file; empty where the path leads to no such choice."""
    known: msgspec.inspect.Type | None = msgspec.inspect.type_info(kind)
    for step in _STEP.finditer(path):
        if isinstance(known, msgspec.inspect.StructType):
            known = next((field.type for field in known.fields if field.encode_name == step["key"]), None)
        elif isinstance(known, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
            known = known.item_type
        elif isinstance(known, msgspec.inspect.DictType):
            known = known.value_type
        else:
            return []
    if isinstance(known, msgspec.inspect.UnionType):
        known = next((one for one in known.types if not isinstance(one, msgspec.inspect.NoneType)), None)
    if isinstance(known, msgspec.inspect.LiteralType):
        return [str(word) for word in known.values]
    return [str(member.value) for member in known.cls] if isinstance(known, msgspec.inspect.EnumType) else []


def _value_at(raw: Any, path: str) -> str:
    """The offending value as JSON, shortened; a description where the path does not lead to one."""
    try:
        value = _at(raw, path)
    except (KeyError, IndexError, TypeError):
        return "wrong"
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else f"an array of length {len(value)}"
    text = json.dumps(value, ensure_ascii=False, default=lambda other: type(other).__name__)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def _at(raw: Any, path: str) -> Any:
    """What the path leads to; raises where it leads nowhere."""
    for step in _STEP.finditer(path):
        if step["index"] is not None:
            raw = raw[int(step["index"])]
        else:
            raw = raw[step["key"] if step["quoted"] is None else json.loads(step["quoted"])]
    return raw
