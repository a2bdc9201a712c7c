"""Every column that can hold text is classified, and every class has a name."""

import pytest
from django.apps import apps
from django.db import models

from erasure.text_columns import ERASABLE, TEXT_CLASSES, TEXT_TABLES

pytestmark = pytest.mark.once
# Columns of these hold no text.
NUMBERS = (
    models.IntegerField,
    models.AutoField,
    models.BooleanField,
    models.DateTimeField,
    models.UUIDField,
    models.ForeignKey,
)


def text_columns(model: type[models.Model]) -> set[str]:
    return {
        column.name for column in model._meta.concrete_fields if not isinstance(column, NUMBERS)
    }


def test_every_text_column_of_every_table_is_classified() -> None:
    classified = {table.label: set(table.columns) for table in TEXT_TABLES}
    missing = {
        model._meta.label: sorted(columns - classified.get(model._meta.label, set()))
        for model in apps.get_models(include_auto_created=True)
        if (columns := text_columns(model)) - classified.get(model._meta.label, set())
    }
    assert missing == {}, "Decide in erasure/text_columns.py what an erasure does with them."


def test_the_table_names_only_columns_and_paths_that_exist() -> None:
    assert len({table.label for table in TEXT_TABLES}) == len(TEXT_TABLES)
    for table in TEXT_TABLES:
        assert set(table.columns) <= {f.name for f in table.model._meta.concrete_fields}, table
        assert table.text_class in TEXT_CLASSES
        for path in filter(None, (table.project, table.session, table.author)):
            table.model._base_manager.values(path)
    assert TEXT_TABLES[-4].label == "journal.Body" or any(
        table.label == "journal.Body" and table.erasable for table in TEXT_TABLES
    )


def test_a_table_with_a_session_can_be_held() -> None:
    """Rows of a session that are erasable name their session, so that a hold on it wins."""
    without = {
        table.label
        for table in TEXT_TABLES
        if table.erasable
        and not table.session
        and "session" in {f.name for f in table.model._meta.concrete_fields}
    }
    assert without == set()
    assert ERASABLE
