"""Queries that are put into SQL once a process: for those of every page, that takes longer than to answer them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import QuerySet

# kind of a value -> what stands for the n-th while the SQL is made: nothing that a query of ours would say of itself,
# and small enough for every column of whole numbers.
_STAND_INS: Final[dict[type, Callable[[int], Any]]] = {
    UUID: lambda number: UUID(int=0x51A4D1B0_0000_7000_8000_7F3E00000000 + number),
    int: lambda number: 2_113_906_500 + number,
}


@dataclass(frozen=True, slots=True)
class _Made:
    """A query set with its SQL: `places` says which parameter is which value, and how the driver takes it."""

    rows: "QuerySet[Any]"
    compiler: Any  # which also knows how to read the rows
    sql: str
    parameters: tuple[Any, ...]
    places: tuple[tuple[int, str, Callable[[Any], Any]], ...]


class Compiled:
    """The rows of a query set that differs from one call to the next in nothing but a few values.

    `build` makes it, from a stand-in for each value, which it may compare columns with and nothing else: what it made
    serves every later call. `kinds` names the values and says of each whether it is a UUID or an int.
    """

    def __init__(self, build: "Callable[..., QuerySet[Any]]", **kinds: type) -> None:
        self._build, self._kinds = build, kinds
        self._made: dict[str, _Made] = {}  # by vendor

    def rows(self, **values: Any) -> list[Any]:
        """All rows for these values, as the query set would give them. One query."""
        connection: Any = connections[DEFAULT_DB_ALIAS]
        made = self._made.get(connection.vendor) or self._made.setdefault(connection.vendor, self._make(connection))
        parameters = list(made.parameters)
        for at, name, adapted in made.places:
            parameters[at] = adapted(values[name])
        compiler = copy.copy(made.compiler)
        compiler.connection = connection
        compiler.as_sql = lambda *_arguments, **_options: (made.sql, tuple(parameters))
        read: Any = made.rows._iterable_class
        return list(read(_Asked(made.rows, compiler)))

    def _make(self, connection: Any) -> _Made:
        stand_ins = {name: _STAND_INS[kind](number) for number, (name, kind) in enumerate(self._kinds.items())}
        rows = self._build(**stand_ins)
        compiler: Any = rows.query.get_compiler(DEFAULT_DB_ALIAS)
        text, parameters = compiler.as_sql()
        places = []
        for name, stand_in in stand_ins.items():
            as_text = isinstance(stand_in, UUID) and not connection.features.has_native_uuid_field
            wanted = stand_in.hex if as_text else stand_in
            found = [at for at, one in enumerate(parameters) if type(one) is not bool and one == wanted]
            if not found:
                raise ValueError(f"the query compares nothing with {name!r}")
            # A driver's own kind of number is kept: it says which type the server is told.
            places += [(at, name, (lambda one: one.hex) if as_text else type(parameters[at])) for at in found]
        adapted = [(at, name, _as_it_is if adapt is UUID else adapt) for at, name, adapt in places]
        return _Made(rows, compiler, text, tuple(parameters), tuple(adapted))


def _as_it_is(value: Any) -> Any:
    return value


class _Asked:
    """What reads the rows of a query set asks of it, with a compiler that has the SQL already."""

    def __init__(self, rows: "QuerySet[Any]", compiler: Any) -> None:
        self.model, self.db = rows.model, DEFAULT_DB_ALIAS
        self._known_related_objects: dict[Any, Any] = {}
        self._compiler = compiler
        self.query = self

    def get_compiler(self, *_where: Any, **_options: Any) -> Any:
        """The compiler, for the one query."""
        return self._compiler
