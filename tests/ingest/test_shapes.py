"""Every shape is prepared before the first request: msgspec cannot bear that two threads prepare one at once."""

import runpy

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
