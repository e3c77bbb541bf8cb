"""The keywords of a session: each goes where it belongs, and is refused in a sentence where it means nothing."""

from dataclasses import fields
from typing import Any

import pytest
import torch

from runtime.swap.settings import (
    SessionOptions,
    SessionParts,
    SessionSettings,
    parts_of,
    require_known,
    settings_of,
)
from runtime.swap.stages import StageSettings
from solvers.ir.errors import InvalidInput

CPU = torch.device("cpu")


def test_every_keyword_is_a_part_a_setting_or_names_the_solver() -> None:
    known = {field.name for kind in (SessionParts, SessionSettings) for field in fields(kind)}
    assert set(SessionOptions.__annotations__) == known | {"solver"}


def test_keywords_go_where_they_belong() -> None:
    model = torch.nn.Linear(1, 1)
    options = SessionOptions(model=model, guard=False, headroom=0.5, device="sim")
    assert parts_of(options, CPU) == SessionParts(device=CPU, model=model)
    assert settings_of(options) == SessionSettings(guard=False, headroom=0.5)


def test_no_stages_are_the_paper_s() -> None:
    assert settings_of(SessionOptions(stages=None)).stages == StageSettings()


def test_an_unknown_keyword_is_python_s_own_error() -> None:
    unknown: Any = {"budgets": 3}
    with pytest.raises(TypeError, match=r"session\(\) got an unexpected keyword argument 'budgets'"):
        require_known(unknown)


def test_a_part_of_another_type_is_refused() -> None:
    wrong: Any = {"model": "GPT"}
    with pytest.raises(InvalidInput, match="model is 'GPT': give the module that trains, or None"):
        parts_of(wrong, CPU)
