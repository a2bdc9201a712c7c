"""docs/search.md is what the registry says, and every query in it can be asked."""

import pytest

from inquiry.query import asking, completing, pieces, reading, reference, telling
from inquiry.query.entities import ENTITIES
from sessions import projects
from tests.house.server import ROOT


@pytest.mark.once
def test_the_document_is_what_the_registry_says() -> None:
    told = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")
    assert told == reference.page(), "python manage.py describe_search > docs/search.md"
    for entity in ENTITIES.values():
        for one in (*entity.fields, *entity.flags, *(f"any({scope}: " for scope in entity.scopes)):
            assert f"`{one}" in told


@pytest.mark.django_db
def test_every_example_is_answered() -> None:
    project = projects.ensure_default()
    for text in reference.examples():
        asked = asking.understand(text, project, 1_800_000_000_000_000)
        found = asking.answer(asked, lambda rows: rows)
        assert found.rows == [], text
        assert telling.told(asked.query).endswith("."), text
        left = [one.text for one in pieces.pieces(asked.query) if one.node is not None]
        assert len(left) == len(reading.conjuncts(asked.query)), text
        for piece in left:  # each reads alone
            assert len(reading.conjuncts(reading.read(f"{asked.entity.name} {piece}"))) == 1, (text, piece)
        assert len(completing.complete(text, len(text), project).options) <= completing.MOST
