"""Shapes of requests: all are prepared before the first request, because msgspec is not thread-safe
there."""

import re
import runpy
from typing import Any

import msgspec
import pytest

from api.endpoint import convert_to_struct
from api.events.parse import EVENT_SCHEMAS
from api.problems import Problem
from api.schemas import core


@pytest.mark.once
def test_every_shape_is_prepared_when_the_module_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[object] = []
    monkeypatch.setattr(msgspec.json, "Decoder", prepared.append)
    module = runpy.run_path(core.__file__)
    made = [
        value
        for value in module.values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    ]
    assert set(made) == set(prepared)
    assert {module["Envelope"], module["PlanEffect"], *module["REPORTED"].values()} <= set(prepared)


@pytest.mark.parametrize("good", ["a", "a b", "x" * 200, "é😀", "\u202e"])
def test_identifiers_pass(good: str) -> None:
    assert msgspec.convert(good, core.Key) == good


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\x00", "a\n", "\x7f", "\x85", 7, None])
def test_identifiers_are_refused(bad: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(bad, core.Key)


_PLAIN = "Expected text without control characters"
_ADVICE = "See /api/v1/openapi.json for the schema."


@pytest.mark.parametrize(
    ("value", "shape", "sentence", "pointer"),
    [
        ({"key": "a\x00"}, core.OpenSession, _PLAIN, "/key"),
        (
            {"key": "k", "labels": {"a": 5}},
            core.OpenSession,
            "Expected `str`, got `int`",
            "/labels",
        ),
        (
            {"key": "k", "labels": {"a": "\n"}},
            core.OpenSession,
            _PLAIN,
            "/labels",
        ),
        (
            {"key": "k", "labels": {"\n": "a"}},
            core.OpenSession,
            _PLAIN,
            "/labels",
        ),
        (
            {"items": [{"key": "k", "state": "new"}]},
            core.PutItems,
            "Invalid enum value 'new'",
            "/items/0/state",
        ),
    ],
)
def test_a_refusal_points_to_the_fault_and_describes_what_was_expected(
    value: dict[str, Any], shape: type[Any], sentence: str, pointer: str
) -> None:
    with pytest.raises(Problem) as refused:
        convert_to_struct(value, shape)
    assert (refused.value.detail, refused.value.pointer) == (f"{sentence}. {_ADVICE}", pointer)


def test_every_pattern_has_its_words() -> None:
    text = msgspec.json.encode(
        msgspec.json.schema_components([core.OpenSession, *EVENT_SCHEMAS.values()])
    ).decode()
    text += msgspec.json.encode(msgspec.json.schema(core.Envelope)).decode()
    patterns = set(re.findall(r'"pattern":("(?:[^"\\]|\\.)*")', text))
    assert patterns
    assert {msgspec.json.decode(pattern) for pattern in patterns} <= core.PATTERN_ERRORS.keys()
