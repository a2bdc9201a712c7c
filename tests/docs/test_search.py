"""docs/reference/search.md is rendered from the registry, and every query in it can be run."""

import pytest

from accounts import projects
from investigation.query import autocomplete, compiler, describe, docs, edit, execute
from investigation.query.entity_registry import ENTITIES
from tests.config.server import ROOT


@pytest.mark.once
def test_the_document_is_rendered_from_the_registry() -> None:
    document = (ROOT / "docs" / "reference" / "search.md").read_text(encoding="utf-8")
    assert document == docs.render_search_docs(), (
        "python manage.py describe_search > docs/reference/search.md"
    )
    for entity in ENTITIES.values():
        for name in (*entity.fields, *entity.flags, *(f"any({scope}: " for scope in entity.scopes)):
            assert f"`{name}" in document


@pytest.mark.django_db
def test_every_example_is_answered() -> None:
    project = projects.ensure_default_project()
    for text in docs.all_examples():
        compiled = execute.compile_query(text, project, 1_800_000_000_000_000)
        results = execute.load_results(compiled, lambda rows: rows)
        assert results.rows == [], text
        assert describe.describe_query(compiled.query).endswith("."), text
        left = [
            condition.text
            for condition in edit.split_conditions(compiled.query)
            if condition.node is not None
        ]
        assert len(left) == len(compiler.top_level_conditions(compiled.query)), text
        for piece in left:  # each condition parses alone
            assert (
                len(
                    compiler.top_level_conditions(
                        compiler.parse_query(f"{compiled.entity.name} {piece}")
                    )
                )
                == 1
            ), (text, piece)
        assert (
            len(autocomplete.complete_query(text, len(text), project).options)
            <= autocomplete.MAX_OPTIONS
        )
