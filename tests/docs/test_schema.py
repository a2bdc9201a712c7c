"""docs/reference/schema.md lists every table, column, index and writer, and every field of the paper's
Table 6."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
from django.apps import apps
from django.conf import settings
from django.db import models

from tests.ledger.test_one_writer import OURS, claimed

pytestmark = pytest.mark.once
ROOT: Final = Path(settings.BASE_DIR)
PAGE: Final = (ROOT / "docs" / "reference" / "schema.md").read_text()
MODELS: Final = {
    model._meta.db_table: model
    for model in apps.get_models()
    if model._meta.db_table in OURS.values()
}
FACTS: Final = ["Holds", "Written by", "Retention", "Migration", "Backup"]

# Table 6 of the paper: the tables and their representative fields.
TABLE_6: Final = {
    "sessions": "session id, repository id, status, current cursor, owner, created at, updated at",
    "session_tasks": "task id, session id, parent task id, state, priority, assigned worker, "
    "branch label",
    "effect_ledger": (
        "effect id, session id, task id, tool, intent hash, idempotency key, state, external "
        "reference, timestamps"
    ),
    "approvals": "approval id, session id, policy gate, requester, approver, decision, rationale, "
    "timestamps",
    "artifacts": "artifact id, session id, type, URI or path, content hash, size, retention class",
    "checkpoint_blob": (
        "compact execution summary, prompt cache keys, resumable cursor snapshot, version pins"
    ),
    "export_bundle": (
        "human-readable session summary, selected traces, selected diffs, machine-portable metadata"
    ),
}
PARTS: Final = {
    "export_bundle": ("README.md", "bundle.json", "diffs/")
}  # columns of a file, where the paper means no storage
PAPER: Final = ROOT.parent / "shared" / "seeds"


def rows(text: str) -> list[list[str]]:
    """Return the rows of the first Markdown table in `text`, without its head."""
    table_rows = []
    for line in text[text.index("|---") :].splitlines()[1:]:
        if not line.startswith("|"):
            break
        table_rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return table_rows


def section(title: str, level: str = "##") -> str:
    """Return the text under a heading, up to the next heading."""
    start = PAGE.index(f"\n{level} {title}\n") + 1
    body = PAGE[start + len(level) + len(title) + 2 :]
    return re.split(r"\n#{1,3} ", body)[0]


def fields_of(model: type[models.Model]) -> list[Any]:
    """Return the model's fields with columns, for which django-stubs has no type."""
    return list(model._meta.local_fields)


def columns(model: type[models.Model]) -> set[str]:
    """Return the names of a table's columns, and of fields with another name."""
    return {name for field in fields_of(model) for name in (field.name, field.column)}


def test_the_list_of_fields_is_the_papers() -> None:
    papers = sorted(PAPER.glob("001_*.txt")) if PAPER.is_dir() else []
    for paper in papers:
        text = paper.read_text()
        for table, fields in TABLE_6.items():
            assert re.search(rf"^{table}\t[^\t]*\t{re.escape(fields)}$", text, re.MULTILINE), table


def test_every_field_of_table_6_has_a_row_with_its_column_or_a_reason() -> None:
    documented = rows(section("The paper's Table 6, field by field"))
    assert [(row[0], row[1]) for row in documented] == [
        (table, name) for table, fields in TABLE_6.items() for name in fields.split(", ")
    ]
    for table, name, home, remark in documented:
        if table in PARTS:
            assert home.strip("`") in PARTS[table], (table, name)
            assert remark
        else:
            assert re.fullmatch(r"`[a-z_]+\.[a-z0-9_]+`", home), (table, name)


def test_every_column_that_is_named_exists() -> None:
    named = re.findall(
        r"`((?:journal|accounts|agent_sessions|ledger|api)_[a-z]+)\.([a-z0-9_]+)`", PAGE
    )
    assert len(named) > 40
    for table, column in named:
        assert table in MODELS, table
        assert column in columns(MODELS[table]), f"{table}.{column}"


def test_every_table_has_a_section_and_every_section_has_a_table() -> None:
    assert sorted(re.findall(r"^### `([a-z_]+)`$", PAGE, re.MULTILINE)) == sorted(MODELS)


@pytest.mark.parametrize("table", sorted(MODELS))
def test_a_tables_section_has_every_fact(table: str) -> None:
    facts = {row[0]: row[1] for row in rows(section(f"`{table}`", "###"))}
    assert list(facts) == FACTS
    assert all(len(text) >= len("ordinary.") for text in facts.values())
    writer = facts["Written by"].strip("`")
    assert MODELS[table].__name__ in claimed((ROOT / writer).read_text()), writer


@pytest.mark.parametrize("table", sorted(MODELS))
def test_every_index_of_a_table_is_listed_with_its_columns(table: str) -> None:
    model = MODELS[table]
    text = section(f"`{table}`", "###")
    documented = rows(text[text.index("| Index |") :])
    assert all(len(row) == 3 and row[2] for row in documented), documented

    named = {
        row[0].strip("`"): re.findall(r"`([a-z0-9_]+)`", row[1])
        for row in documented
        if row[0].startswith("`")
    }
    expected = {index.name: list(index.fields) for index in model._meta.indexes}
    unique = [item for item in model._meta.constraints if isinstance(item, models.UniqueConstraint)]
    expected |= {constraint.name: list(constraint.fields) for constraint in unique}
    assert named == expected

    foreign = {row[1].strip("`") for row in documented if row[0] == "foreign key"}
    assert foreign == {
        item.column for item in fields_of(model) if item.db_index and not item.unique
    }

    primary = [row[1].strip("`") for row in documented if row[0] == "primary key"]
    assert primary in ([], [item.column for item in fields_of(model) if item.primary_key])


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / "reference" / target).exists(), target
