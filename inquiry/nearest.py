"""Several short look-ups of effects in one statement: each is served by its own index, and together they are one query.

A union of them would do the same, but SQLite takes none of parts that have an order and a limit of their own.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet, Subquery, TextField
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


def ids(effect: Effect, asked: "Mapping[str, QuerySet[Effect]]") -> dict[str, list[UUID]]:
    """The ids that each of `asked` (ordered and cut short) finds, by their positions. `effect` is any that is there."""
    gathered = {name: _Gathered(rows.values("opened_position", "id")) for name, rows in asked.items()}
    if not gathered:
        return {}
    row = Effect.objects.filter(id=effect.id).annotate(**gathered).values(*gathered).get()
    return {name: [identity for _, identity in sorted(_read(text))] for name, text in row.items()}


def _read(text: str | None) -> list[tuple[int, UUID]]:
    pairs = [one.split(":") for one in text.split(" ")] if text else []
    return [(int(position), UUID(identity)) for position, identity in pairs]
