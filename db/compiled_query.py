"""Querysets compiled to SQL once per process, to save time on every page."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import QuerySet
from django.db.models.query import FlatValuesListIterable, ValuesListIterable

# Type of a value -> the placeholder value number n while SQL is compiled: none that a query of ours
# contains itself, and small enough for every integer column.
_STAND_INS: Final[dict[type, Callable[[int], Any]]] = {
    UUID: lambda number: UUID(int=0x51A4D1B0_0000_7000_8000_7F3E00000000 + number),
    int: lambda number: 2_113_906_500 + number,
    str: lambda number: f"stands in for {number}, 51A4D1B0",
}
# Lengths of compiled sequences; other lengths are padded with the last value.
_LENGTHS: Final = (1, 2, 4, 8, 16, 32, 50, 100)


@dataclass(frozen=True, slots=True)
class _CompiledSql:
    """A queryset with its SQL, and where its parameters take values."""

    rows: "QuerySet[Any]"
    compiler: Any  # also converts the rows
    sql: str
    parameters: tuple[Any, ...]
    places: tuple[tuple[int, int, int, Callable[[Any], Any]], ...]
    converters: Mapping[int, Any] | None  # by column; None if Django has to find them


class CompiledQuerySet:
    """A queryset whose calls differ only in a few values.

    `build` makes it from a placeholder for each value, and may only compare columns with these: the
    result serves every later call. `kinds` names the values with their types, UUID, int or str; a
    list of one type for a sequence in `__in`, which must not be empty.
    """

    def __init__(self, build: "Callable[..., QuerySet[Any]]", **kinds: type | list[Any]) -> None:
        self._build, self._kinds = build, kinds
        self._made: dict[
            tuple[str | int, ...], _CompiledSql
        ] = {}  # by vendor and lengths of sequences

    def rows(self, **values: Any) -> list[Any]:
        """Return all rows for these values, as the queryset would. One query."""
        connection: Any = connections[DEFAULT_DB_ALIAS]
        made, parameters = self._fill(connection, values)
        read: Any = made.rows._iterable_class
        if made.converters is not None and read in (ValuesListIterable, FlatValuesListIterable):
            listed = _fetch_all(connection, made.sql, parameters)
            if made.converters:
                listed = _convert_rows(listed, made.converters, connection)
            return listed if read is ValuesListIterable else [value for value, *_ in listed]
        compiler = copy.copy(made.compiler)
        compiler.connection = connection
        compiler.as_sql = lambda *_arguments, **_options: (made.sql, tuple(parameters))
        return list(read(_QuerySetProxy(made.rows, compiler)))

    def plain_rows(self, **values: Any) -> list[tuple[Any, ...]]:
        """Return all rows as the database does, UUIDs as `vendor_id` returns them. One query.

        For many rows of which a page needs a few: converting a UUID takes 1 µs on SQLite.
        """
        connection: Any = connections[DEFAULT_DB_ALIAS]
        made, parameters = self._fill(connection, values)
        return _fetch_all(connection, made.sql, parameters)

    def _fill(self, connection: Any, values: Mapping[str, Any]) -> tuple[_CompiledSql, list[Any]]:
        """Return the compiled query and its parameters for these values."""
        given = [
            _filled(values[name]) if type(kind) is list else (values[name],)
            for name, kind in self._kinds.items()
        ]
        key = (connection.vendor, *map(len, given))
        made = self._made.get(key)
        if made is None:
            made = self._make(connection, list(map(len, given)))
            # Longer ones have a length each, too many to cache.
            if max(map(len, given), default=0) <= _LENGTHS[-1]:
                self._made[key] = made
        parameters = list(made.parameters)
        for at, name, place, adapted in made.places:
            parameters[at] = adapted(given[name][place])
        return made, parameters

    def _make(self, connection: Any, lengths: Sequence[int]) -> _CompiledSql:
        number = count()
        stand_ins: dict[str, Any] = {}
        places_of: dict[Any, tuple[int, int]] = {}  # by placeholder value
        for at, ((name, kind), length) in enumerate(zip(self._kinds.items(), lengths, strict=True)):
            make = _STAND_INS[kind[0] if isinstance(kind, list) else kind]
            made = [make(next(number)) for _ in range(length)]
            stand_ins[name] = made if isinstance(kind, list) else made[0]
            as_text = isinstance(made[0], UUID) and not connection.features.has_native_uuid_field
            places_of |= {
                stand_in.hex if as_text else stand_in: (at, place)
                for place, stand_in in enumerate(made)
            }
        rows = self._build(**stand_ins)
        compiler: Any = rows.query.get_compiler(DEFAULT_DB_ALIAS)
        text, parameters = compiler.as_sql()
        places = [
            (at, *places_of[stand_in], _adapted(stand_in))
            for at, stand_in in enumerate(parameters)
            if _is_one_of(stand_in, places_of)
        ]
        for at, name in enumerate(self._kinds):
            if all(owner != at for _at, owner, *_ in places):
                raise ValueError(f"the query compares nothing with {name!r}")
        converters = _keep_converters(compiler)
        return _CompiledSql(rows, compiler, text, tuple(parameters), tuple(places), converters)


def _keep_converters(compiler: Any) -> Mapping[int, Any] | None:
    """Let a compiler find the converters of its columns once, and not for every page.

    Returns them; None for columns of several fields, which Django joins.
    """
    columns = [column for column, *_ in compiler.select[: compiler.col_count]]
    if compiler.has_composite_fields(columns):
        return None
    converters: Mapping[int, Any] = compiler.get_converters(columns)
    compiler.get_converters = lambda _columns: converters
    compiler.has_composite_fields = lambda _columns: False
    return converters


def _fetch_all(connection: Any, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        fetched: list[tuple[Any, ...]] = cursor.fetchall()
    return fetched


def _convert_rows(
    rows: Sequence[tuple[Any, ...]], converters: Mapping[int, Any], connection: Any
) -> list[tuple[Any, ...]]:
    """Convert columns as Django's compiler does, which reads rows one by one."""
    converted = [list(row) for row in rows]
    for at, (functions, expression) in converters.items():
        for row in converted:
            value = row[at]
            for convert in functions:
                value = convert(value, expression, connection)
            row[at] = value
    return list(map(tuple, converted))


def _filled(values: Sequence[Any]) -> Sequence[Any]:
    length = next((most for most in _LENGTHS if len(values) <= most), len(values))
    return [*values, *[values[-1]] * (length - len(values))]


def _is_one_of(parameter: Any, stand_ins: Mapping[Any, Any]) -> bool:
    return (
        isinstance(parameter, UUID | int | str)
        and type(parameter) is not bool
        and parameter in stand_ins
    )


def _adapted(stand_in: Any) -> Callable[[Any], Any]:
    """Return the converter for values; an int's type sets its SQL type."""
    if isinstance(stand_in, int):
        return type(stand_in)
    return _as_it_is if isinstance(stand_in, UUID) else _as_text


def _as_it_is(value: Any) -> Any:
    return value


def _as_text(value: Any) -> str:
    return value.hex if isinstance(value, UUID) else str(value)


class _QuerySetProxy:
    """What row iterables need of a queryset, with a compiler that has the SQL."""

    def __init__(self, rows: "QuerySet[Any]", compiler: Any) -> None:
        self.model, self.db = rows.model, DEFAULT_DB_ALIAS
        self._known_related_objects: dict[Any, Any] = {}
        self._rows, self._compiler = rows, compiler
        self.query = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows.query, name)

    def get_compiler(self, *_where: Any, **_options: Any) -> Any:
        """Return the compiler of the one query."""
        return self._compiler
