"""Schema changes in SQLite, where triggers on one table read another."""

from typing import Any, Self

from django.db.backends.sqlite3.schema import DatabaseSchemaEditor


class SchemaEditor(DatabaseSchemaEditor):
    """Django's editor, which rebuilds a table, drops the old one and renames the new.

    In between, a trigger that reads the table finds none, and SQLite would refuse the renaming. It
    does not check while `legacy_alter_table` is on. References to the table keep its name.
    """

    def __enter__(self) -> Self:
        self._skip_rename_checks(on=True)
        return super().__enter__()

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        try:
            super().__exit__(exc_type, exc_value, traceback)
        finally:
            self._skip_rename_checks(on=False)

    def _skip_rename_checks(self, *, on: bool) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(f"PRAGMA legacy_alter_table = {'ON' if on else 'OFF'}")
