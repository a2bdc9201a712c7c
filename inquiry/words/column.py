"""The column of an effect's words, and how it is asked: a tsvector on PostgreSQL, text between blanks on SQLite.

No text of anybody's becomes syntax: what is asked for was cut into letters and digits before, and is quoted all the
same.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.sql.compiler import SQLCompiler

TOKEN: Final = 4  # hex digits


class Term(NamedTuple):
    """A word that is asked for, or the beginning of one."""

    word: str
    prefix: bool = False


def stored(project: UUID, word: str) -> str:
    """How the word stands in the index: behind the end of its project's id.

    So what another project says a million times is another word, and makes no search of this one slower. Projects whose
    ids end alike share such words; the row's own project tells them apart.
    """
    return token(project) + word


def joined(project: str, words: Iterable[str]) -> str:
    """The column's value for `words`: each between blanks, sorted, so that equal sets are equal values.

    `project` as plain SQL gives it as text.
    """
    return f" {project[-TOKEN:]}".join(["", *sorted(words)]) + " "


def token(project: UUID) -> str:
    """The end of the project's id, behind which its words stand."""
    return project.hex[-TOKEN:]


@dataclass(frozen=True, slots=True)
class Asked:
    """Terms of a project, all of which are to be found."""

    project: UUID
    terms: tuple[Term, ...]

    def tsquery(self) -> str:
        """As PostgreSQL reads it."""
        return " & ".join(itertools.chain(*self.tsqueries()))

    def tsqueries(self) -> tuple[list[str], list[str]]:
        """The same one by one: whole words, and beginnings."""
        told = [(f"'{stored(self.project, one.word)}'{':*' * one.prefix}", one.prefix) for one in self.terms]
        return [text for text, prefix in told if not prefix], [text for text, prefix in told if prefix]

    def match(self) -> str:
        """As SQLite's FTS5 reads it."""
        return " AND ".join(f'"{stored(self.project, term.word)}"{" *" * term.prefix}' for term in self.terms)

    def pieces(self) -> list[str]:
        """What the column's value contains on SQLite."""
        return [f" {stored(self.project, term.word)}{'' if term.prefix else ' '}" for term in self.terms]


class RowId(models.BigIntegerField):  # type: ignore[type-arg]  # its set and get types cannot be named
    """A bigint that is SQLite's own row id: FTS5 names rows by that."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """The column type per vendor."""
        return "integer" if connection.vendor == "sqlite" else super().db_type(connection)


class WordsField(models.TextField):  # type: ignore[type-arg]  # as above
    """What `joined` makes."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """The column type per vendor."""
        return "tsvector" if connection.vendor == "postgresql" else super().db_type(connection)

    def get_placeholder(self, _value: Any, _compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> str:
        """How a value is written."""
        return AS_TSVECTOR.format("%s::text") if connection.vendor == "postgresql" else "%s"


AS_TSVECTOR: Final = "array_to_tsvector(string_to_array(btrim({}), ' '))"


@WordsField.register_lookup
class Holds(models.Lookup):
    """`words__hold=Asked(…)`: every term is among the words."""

    lookup_name = "hold"
    prepare_rhs = False
    rhs: Asked

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """By the operator that the index serves."""
        column, parameters = self.process_lhs(compiler, connection)
        return f"{column} @@ %s::tsquery", (*parameters, self.rhs.tsquery())

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """By the text of the row, for a row that is at hand; what finds rows is the index (keeping.py)."""
        column, parameters = self.process_lhs(compiler, connection)
        pieces = self.rhs.pieces()
        return (
            "(" + " AND ".join([f"instr({column}, %s) > 0"] * len(pieces)) + ")",
            tuple(part for piece in pieces for part in (*parameters, piece)),
        )


@models.BigIntegerField.register_lookup
@models.UUIDField.register_lookup
class Listed(models.Lookup):
    """`column__listed=[…]`: one of many numbers or ids, which travel as one parameter.

    Of a list or tuple of thousands Django would look at every item; array("q", …) spares that.
    """

    lookup_name = "listed"
    prepare_rhs = False
    rhs: "Sequence[int] | Sequence[UUID]"

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """As an array."""
        column, parameters = self.process_lhs(compiler, connection)
        kind = "uuid" if self._is_of_ids() else "bigint"
        return f"{column} = ANY (%s::{kind}[])", (*parameters, "{" + ",".join(map(str, self.rhs)) + "}")

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """As a JSON document."""
        column, parameters = self.process_lhs(compiler, connection)
        items = [f'"{one.hex}"' if isinstance(one, UUID) else str(one) for one in self.rhs]
        return f"{column} IN (SELECT value FROM json_each(%s))", (*parameters, f"[{','.join(items)}]")

    def _is_of_ids(self) -> bool:
        return isinstance(self.lhs.output_field, models.UUIDField)


@models.BigIntegerField.register_lookup
class Gathered(models.Lookup):
    """`column__gathered=rows.values(…)`: one of the numbers that a query finds, which is asked for all of them first.

    Of a hundred thousand PostgreSQL else reads the whole table, to join it.
    """

    lookup_name = "gathered"
    prepare_rhs = False

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """As an array, by which the column's index is gone through once."""
        column, parameters = self.process_lhs(compiler, connection)
        text, found = self.process_rhs(compiler, connection)
        return f"{column} = ANY (ARRAY{text})", (*parameters, *found)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """As it stands: SQLite gathers them by itself."""
        column, parameters = self.process_lhs(compiler, connection)
        text, found = self.process_rhs(compiler, connection)
        return f"{column} IN {text}", (*parameters, *found)


class Oldest(models.Expression):
    """The position below which no effect has all of what is asked; looked up when, and only if, a row is compared."""

    output_field = models.BigIntegerField()

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.asked = asked

    def as_postgresql(
        self, _compiler: SQLCompiler, _connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Beginnings are gathered anew at each look, which takes longer than it saves: of them nothing is told."""
        whole, _begun = self.asked.tsqueries()
        if not whole:
            return "0", ()
        text = "(SELECT inquiry_oldest_of_words(%s, %s, min(position), max(position)) FROM inquiry_effectwords)"
        return text, (whole, self.asked.project)

    def as_sqlite(
        self, _compiler: SQLCompiler, _connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """By the same index that names the rows."""
        text = "SELECT rowid FROM inquiry_wordindex WHERE inquiry_wordindex MATCH %s ORDER BY rowid LIMIT 1"
        return f"coalesce(({text}), 0)", (self.asked.match(),)
