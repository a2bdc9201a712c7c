"""The shapes: what may name a thing; all prepared before the first request, as msgspec cannot do it twice at once."""

import runpy
from typing import Any

import msgspec
import pytest

from ingest import shapes


@pytest.mark.once
def test_every_shape_is_prepared_when_the_module_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[object] = []
    monkeypatch.setattr(msgspec.json, "Decoder", prepared.append)
    module = runpy.run_path(shapes.__file__)
    made = [value for value in module.values() if isinstance(value, type) and issubclass(value, msgspec.Struct)]
    assert set(made) == set(prepared)
    assert {module["Envelope"], module["PlanEffect"], *module["REPORTED"].values()} <= set(prepared)


@pytest.mark.parametrize("good", ["a", "a b", "x" * 200, "é😀", "\u202e"])
def test_identifiers_pass(good: str) -> None:
    assert msgspec.convert(good, shapes.Key) == good


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\x00", "a\n", "\x7f", "\x85", 7, None])
def test_identifiers_are_refused(bad: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(bad, shapes.Key)
