"""Several short look-ups of effects in one statement: each is served by its own index, and together they are one query.

A union of them would do the same, but SQLite takes none of parts that have an order and a limit of their own.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Exists, QuerySet, Subquery, TextField
from django.db.models.sql.compiler import SQLCompiler

from ledger.models import Effect

_EACH = "(SELECT {gather}(found.opened_position || ':' || found.id, ' ') FROM (%(subquery)s) AS found)"


class _Gathered(Subquery):
    """The rows of a query of (opened_position, id) as one text; NULL for none."""

    output_field = TextField()

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        """By PostgreSQL's name for it."""
        return self.as_sql(compiler, connection, template=_EACH.format(gather="string_agg"), **context)

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        """By SQLite's."""
        return self.as_sql(compiler, connection, template=_EACH.format(gather="group_concat"), **context)


def look(
    effect: Effect, asked: "Mapping[str, QuerySet[Effect]]", whether: "Mapping[str, QuerySet[Any]]"
) -> tuple[dict[str, list[UUID]], dict[str, bool]]:
    """The ids that each of `asked` (ordered and cut short) finds, by their positions; and `whether` there is any row.

    `effect` is any that is there. One query.
    """
    gathered = {name: _Gathered(rows.values("opened_position", "id")) for name, rows in asked.items()}
    exist = {name: Exists(rows) for name, rows in whether.items()}
    row = Effect.objects.filter(id=effect.id).annotate(**gathered, **exist).values(*gathered, *exist).get()
    ids = {name: [identity for _, identity in sorted(_read(row[name]))] for name in gathered}
    return ids, {name: bool(row[name]) for name in exist}


def _read(text: str | None) -> list[tuple[int, UUID]]:
    pairs = [one.split(":") for one in text.split(" ")] if text else []
    return [(int(position), UUID(identity)) for position, identity in pairs]
