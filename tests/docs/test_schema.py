"""docs/reference/schema.md says what is there: every table, column, index and writer, and every field of the
paper's Table 6."""

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
}  # of a file, where the paper means no storage
PAPER: Final = ROOT.parent / "shared" / "seeds"


def rows(text: str) -> list[list[str]]:
    """The rows of the first Markdown table in `text`, without its head."""
    found = []
    for line in text[text.index("|---") :].splitlines()[1:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def section(title: str, level: str = "##") -> str:
    """The text under a heading, up to the next one."""
    start = PAGE.index(f"\n{level} {title}\n") + 1
    body = PAGE[start + len(level) + len(title) + 2 :]
    return re.split(r"\n#{1,2} ", body)[0]


def fields_of(model: type[models.Model]) -> list[Any]:
    """The model's fields; django-stubs does not know that each has a column."""
    return list(model._meta.local_fields)


def columns(model: type[models.Model]) -> set[str]:
    """The names of a table's columns, and of the model's fields where they differ."""
    return {name for one in fields_of(model) for name in (one.name, one.column)}


def test_the_list_of_fields_is_the_papers() -> None:
    papers = sorted(PAPER.glob("001_*.txt")) if PAPER.is_dir() else []
    for paper in papers:
        text = paper.read_text()
        for table, fields in TABLE_6.items():
            assert re.search(rf"^{table}\t[^\t]*\t{re.escape(fields)}$", text, re.MULTILINE), table


def test_every_field_of_table_6_has_a_row_with_its_home_or_what_it_waits_for() -> None:
    told = rows(section("The paper's Table 6, field by field"))
    assert [(row[0], row[1]) for row in told] == [
        (table, name) for table, fields in TABLE_6.items() for name in fields.split(", ")
    ]
    for table, name, home, remark in told:
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


def test_every_table_has_its_section_and_no_section_speaks_of_another() -> None:
    assert sorted(re.findall(r"^## `([a-z_]+)`$", PAGE, re.MULTILINE)) == sorted(MODELS)


@pytest.mark.parametrize("table", sorted(MODELS))
def test_a_tables_section_says_all_that_is_to_be_known(table: str) -> None:
    told = {row[0]: row[1] for row in rows(section(f"`{table}`"))}
    assert list(told) == FACTS
    assert all(len(text) >= len("ordinary.") for text in told.values())
    writer = told["Written by"].strip("`")
    assert MODELS[table].__name__ in claimed((ROOT / writer).read_text()), writer


@pytest.mark.parametrize("table", sorted(MODELS))
def test_every_index_of_a_table_is_told_with_its_columns(table: str) -> None:
    model = MODELS[table]
    text = section(f"`{table}`")
    told = rows(text[text.index("| Index |") :])
    assert all(len(row) == 3 and row[2] for row in told), told

    named = {
        row[0].strip("`"): re.findall(r"`([a-z0-9_]+)`", row[1])
        for row in told
        if row[0].startswith("`")
    }
    expected = {index.name: list(index.fields) for index in model._meta.indexes}
    unique = [one for one in model._meta.constraints if isinstance(one, models.UniqueConstraint)]
    expected |= {constraint.name: list(constraint.fields) for constraint in unique}
    assert named == expected

    foreign = {row[1].strip("`") for row in told if row[0] == "foreign key"}
    assert foreign == {one.column for one in fields_of(model) if one.db_index and not one.unique}

    primary = [row[1].strip("`") for row in told if row[0] == "primary key"]
    assert primary in ([], [one.column for one in fields_of(model) if one.primary_key])


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / "reference" / target).exists(), target
