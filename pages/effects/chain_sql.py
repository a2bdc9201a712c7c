"""Several indexed look-ups of effects in one statement.

A union would do the same, but SQLite allows no order and limit within its parts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Exists, Expression, QuerySet, Subquery, TextField
from django.db.models.sql.compiler import SQLCompiler

from db.raw_sql import vendor_id
from ledger.models import Effect

_GATHER: Final = {"postgresql": "string_agg", "sqlite": "group_concat"}
_EACH: Final = "(SELECT {gather}({columns}, ' ') FROM (%(subquery)s) AS found)"
# From an effect to the effect it names, and on; each with its step and the next id.
_UP: Final = """(SELECT
{gather}(way.step || ':' || way.id || ':' || COALESCE(CAST(way.next AS text), '-'), ' ') FROM (
WITH RECURSIVE named(step, id, next) AS (
SELECT 0, id, {link} FROM ledger_effect WHERE id = %s
UNION ALL SELECT named.step + 1, above.id, above.{link} FROM named
JOIN ledger_effect above ON above.id = named.next AND above.project_id = %s WHERE named.step < %s
) SELECT step, id, next FROM named WHERE step > 0) AS way)"""
# From an effect to effects that name it, and on; each with its step and position, nearest levels
# first.
_DOWN: Final = """(SELECT {gather}(way.step || ':' || way.position || ':' || way.id, ' ') FROM (
WITH RECURSIVE naming(step, position, id) AS (
SELECT 0, opened_position, id FROM ledger_effect WHERE id = %s
UNION ALL SELECT naming.step + 1, below.opened_position, below.id FROM naming
JOIN ledger_effect below ON below.{link} = naming.id AND below.project_id = %s
WHERE naming.step < %s
) SELECT step, position, id FROM naming WHERE step > 0 LIMIT %s) AS way)"""


class _ConcatenatedRows(Subquery):
    """Rows of a query with several columns as one text, `1:2 3:4`; NULL for none."""

    output_field = TextField()

    def __init__(self, rows: "QuerySet[Any]", *columns: str) -> None:
        self.columns = columns
        super().__init__(rows.values(*columns))

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        """Use PostgreSQL's aggregate."""
        return self._as("postgresql", compiler, connection, context)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> Any:
        """Use SQLite's aggregate."""
        return self._as("sqlite", compiler, connection, context)

    def _as(
        self, vendor: str, compiler: SQLCompiler, connection: BaseDatabaseWrapper, context: Any
    ) -> Any:
        columns = " || ':' || ".join(f"found.{name}" for name in self.columns)
        return self.as_sql(
            compiler,
            connection,
            template=_EACH.format(gather=_GATHER[vendor], columns=columns),
            **context,
        )


class _RecursivePath(Expression):
    """A recursive walk along a column from one effect, as text."""

    output_field = TextField()

    def __init__(self, text: str, link: str, *parameters: Any) -> None:
        super().__init__()
        self.text, self.link, self.parameters = text, link, parameters

    def as_sql(self, _compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> Any:
        """Use the vendor's aggregate."""
        parameters = [
            vendor_id(value) if isinstance(value, UUID) else value for value in self.parameters
        ]
        return self.text.format(gather=_GATHER[connection.vendor], link=self.link), parameters


@dataclass(slots=True)
class ChainLookups:
    """Results of `load_chain_lookups`.

    `ids` by position, `whether` rows exist, `pairs` of (child, parent) by the child's position,
    `up` by steps as (id, next id), `down` by steps, each by position.
    """

    ids: dict[str, list[UUID]] = field(default_factory=dict)
    whether: dict[str, bool] = field(default_factory=dict)
    pairs: list[tuple[UUID, UUID]] = field(default_factory=list)
    up: dict[str, list[tuple[UUID, UUID | None]]] = field(default_factory=dict)
    down: dict[int, list[UUID]] = field(default_factory=dict)


def load_chain_lookups(
    effect: Effect,
    lookups: "Mapping[str, QuerySet[Effect]]",
    whether: "Mapping[str, QuerySet[Any]]",
    *,
    pairs: "QuerySet[Effect]",
    up: Mapping[str, int],
    down: tuple[str, int, int],
) -> ChainLookups:
    """Run all look-ups in one query.

    `effect` exists; the other queries are ordered and limited.

    `up` maps columns to follow to their step limits; `down` is (column, step limit, row limit).
    """
    link, steps, max_rows = down
    columns: dict[str, Any] = {
        f"ids_{name}": _ConcatenatedRows(rows, "opened_position", "id")
        for name, rows in lookups.items()
    }
    columns |= {f"is_{name}": Exists(rows) for name, rows in whether.items()}
    columns |= {
        f"up_{name}": _RecursivePath(_UP, name, effect.id, effect.project_id, most_up)
        for name, most_up in up.items()
    }
    columns["pairs"] = _ConcatenatedRows(pairs, "opened_position", "id", "parent_effect_id")
    columns["down"] = _RecursivePath(_DOWN, link, effect.id, effect.project_id, steps, max_rows)
    row: dict[str, Any] = (
        Effect.objects.filter(id=effect.id).annotate(**columns).values(*columns).get()
    )
    result = ChainLookups()
    result.ids = {
        name: [
            UUID(effect_id)
            for _, effect_id in sorted(_split_rows(row[f"ids_{name}"]), key=_first_number)
        ]
        for name in lookups
    }
    result.whether = {name: bool(row[f"is_{name}"]) for name in whether}
    result.pairs = [
        (UUID(effect_id), UUID(parent))
        for _, effect_id, parent in sorted(_split_rows(row["pairs"]), key=_first_number)
    ]
    for name in up:
        steps_up = sorted(_split_rows(row[f"up_{name}"]), key=_first_number)
        result.up[name] = [
            (UUID(effect_id), UUID(above) if above != "-" else None)
            for _, effect_id, above in steps_up
        ]
    for step, _, effect_id in sorted(
        _split_rows(row["down"]), key=lambda parts: (int(parts[0]), int(parts[1]))
    ):
        result.down.setdefault(int(step), []).append(UUID(effect_id))
    return result


def _split_rows(text: str | None) -> Iterator[list[str]]:
    return (part.split(":") for part in text.split(" ")) if text else iter(())


def _first_number(parts: list[str]) -> int:
    return int(parts[0])
