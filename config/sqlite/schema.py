"""How SQLite's tables are changed: as Django does it, in a database whose triggers on one table read another."""

from typing import Any, Self

from django.db.backends.sqlite3.schema import DatabaseSchemaEditor


class SchemaEditor(DatabaseSchemaEditor):
    """Django's own, which rebuilds a table under another name, drops the old one and renames the new.

    Between the two a trigger that reads the table reads nothing, and SQLite would refuse the renaming; it does not look
    while `legacy_alter_table` is on. What names the table goes on naming it.
    """

    def __enter__(self) -> Self:
        self._look_away(on=True)
        return super().__enter__()

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        try:
            super().__exit__(exc_type, exc_value, traceback)
        finally:
            self._look_away(on=False)

    def _look_away(self, *, on: bool) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(f"PRAGMA legacy_alter_table = {'ON' if on else 'OFF'}")
