"""A decoder's complaint about a value in a mapping names its key, whatever the key looks like."""

import json

import msgspec
import pytest

from solvers.ir.hardware import Hardware
from solvers.ir.sentences import sentence


def complaint(field: str, mapping: dict[str, object]) -> str:
    raw = {"name": "m", "devices": [{"name": "d0", "memory_bytes": 1, field: mapping}]}
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(raw, Hardware)
    before = json.dumps(raw)
    said = sentence(caught.value, raw, Hardware)
    assert json.dumps(raw) == before
    return said


@pytest.mark.parametrize("key", ["float16", "a.b", "a[0]", 'quoted "so"', "back\\slash", "[...]", ""])
def test_the_key_and_the_value_are_named(key: str) -> None:
    place = f"devices[0].flops_per_s[{json.dumps(key)}]"
    said = complaint("flops_per_s", {"float32": 5, key: "fast", "float64": 1})
    assert said == f'{place} is "fast", but `int` is needed here: correct it'
    assert complaint("flops_per_s", {key: 0}) == f"{place} is 0, but `int` >= 1 is needed here: correct it"


def test_a_fraction_beyond_one() -> None:
    said = complaint("efficiency", {"matmul": 0.5, "copy": 1.5})
    assert said == 'devices[0].efficiency["copy"] is 1.5, but `float` <= 1.0 is needed here: correct it'
