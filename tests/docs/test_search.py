"""docs/reference/search.md is what the registry says, and every query in it can be asked."""

import pytest

from accounts import projects
from investigation.query import autocomplete, compiler, describe, docs, edit, execute
from investigation.query.entity_registry import ENTITIES
from tests.config.server import ROOT


@pytest.mark.once
def test_the_document_is_what_the_registry_says() -> None:
    told = (ROOT / "docs" / "reference" / "search.md").read_text(encoding="utf-8")
    assert told == docs.render_search_docs(), (
        "python manage.py describe_search > docs/reference/search.md"
    )
    for entity in ENTITIES.values():
        for one in (*entity.fields, *entity.flags, *(f"any({scope}: " for scope in entity.scopes)):
            assert f"`{one}" in told


@pytest.mark.django_db
def test_every_example_is_answered() -> None:
    project = projects.ensure_default_project()
    for text in docs.all_examples():
        asked = execute.compile_query(text, project, 1_800_000_000_000_000)
        found = execute.load_results(asked, lambda rows: rows)
        assert found.rows == [], text
        assert describe.describe_query(asked.query).endswith("."), text
        left = [one.text for one in edit.split_conditions(asked.query) if one.node is not None]
        assert len(left) == len(compiler.top_level_conditions(asked.query)), text
        for piece in left:  # each reads alone
            assert (
                len(
                    compiler.top_level_conditions(
                        compiler.parse_query(f"{asked.entity.name} {piece}")
                    )
                )
                == 1
            ), (text, piece)
        assert (
            len(autocomplete.complete_query(text, len(text), project).options)
            <= autocomplete.MAX_OPTIONS
        )
