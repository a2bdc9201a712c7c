"""Queries that are put into SQL once a process: for those of every page, that takes longer than to answer them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import QuerySet

# kind of a value -> what stands for the n-th while the SQL is made: nothing that a query of ours would say of itself,
# and small enough for every column of whole numbers.
_STAND_INS: Final[dict[type, Callable[[int], Any]]] = {
    UUID: lambda number: UUID(int=0x51A4D1B0_0000_7000_8000_7F3E00000000 + number),
    int: lambda number: 2_113_906_500 + number,
    str: lambda number: f"stands in for {number}, 51A4D1B0",
}
# Lengths of sequences for which SQL is made; one that lies between is filled up with its last value.
_LENGTHS: Final = (1, 2, 4, 8, 16, 32, 50, 100)


@dataclass(frozen=True, slots=True)
class _Made:
    """A query set with its SQL. A place: which parameter, name and value of it, how the driver takes it."""

    rows: "QuerySet[Any]"
    compiler: Any  # which also knows how to read the rows
    sql: str
    parameters: tuple[Any, ...]
    places: tuple[tuple[int, int, int, Callable[[Any], Any]], ...]


class Compiled:
    """The rows of a query set that differs from one call to the next in nothing but a few values.

    `build` makes it, from a stand-in for each value, which it may compare columns with and nothing else: what it made
    serves every later call. `kinds` names the values and says of each whether it is a UUID, an int or a str; of a
    sequence for `__in`, which must not be empty, as a list of its kind.
    """

    def __init__(self, build: "Callable[..., QuerySet[Any]]", **kinds: type | list[Any]) -> None:
        self._build, self._kinds = build, kinds
        self._made: dict[tuple[str | int, ...], _Made] = {}  # by vendor and lengths of sequences

    def rows(self, **values: Any) -> list[Any]:
        """All rows for these values, as the query set would give them. One query."""
        connection: Any = connections[DEFAULT_DB_ALIAS]
        given = [
            _filled(values[name]) if type(kind) is list else (values[name],)
            for name, kind in self._kinds.items()
        ]
        key = (connection.vendor, *map(len, given))
        made = self._made.get(key)
        if made is None:
            made = self._make(connection, list(map(len, given)))
            # longer ones have a length each: too many to keep
            if max(map(len, given), default=0) <= _LENGTHS[-1]:
                self._made[key] = made
        parameters = list(made.parameters)
        for at, name, place, adapted in made.places:
            parameters[at] = adapted(given[name][place])
        compiler = copy.copy(made.compiler)
        compiler.connection = connection
        compiler.as_sql = lambda *_arguments, **_options: (made.sql, tuple(parameters))
        read: Any = made.rows._iterable_class
        return list(read(_Asked(made.rows, compiler)))

    def _make(self, connection: Any, lengths: Sequence[int]) -> _Made:
        number = count()
        stand_ins: dict[str, Any] = {}
        places_of: dict[Any, tuple[int, int]] = {}  # by what is found among the parameters
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
        return _Made(rows, compiler, text, tuple(parameters), tuple(places))


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
    """How the driver takes a value where it took `stand_in`. A number's own kind says which type the server is told."""
    if isinstance(stand_in, int):
        return type(stand_in)
    return _as_it_is if isinstance(stand_in, UUID) else _as_text


def _as_it_is(value: Any) -> Any:
    return value


def _as_text(value: Any) -> str:
    return value.hex if isinstance(value, UUID) else str(value)


class _Asked:
    """What reads the rows of a query set asks of it, with a compiler that has the SQL already."""

    def __init__(self, rows: "QuerySet[Any]", compiler: Any) -> None:
        self.model, self.db = rows.model, DEFAULT_DB_ALIAS
        self._known_related_objects: dict[Any, Any] = {}
        self._rows, self._compiler = rows, compiler
        self.query = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows.query, name)

    def get_compiler(self, *_where: Any, **_options: Any) -> Any:
        """The compiler, for the one query."""
        return self._compiler
