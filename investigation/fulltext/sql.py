"""The column of an effect's words: a tsvector on PostgreSQL, blank-separated text on SQLite.

No untrusted text becomes syntax: search terms consist of letters and digits, and are quoted anyway.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.sql.compiler import SQLCompiler

TOKEN_DIGITS: Final = 4  # Number of hex digits.


class SearchTerm(NamedTuple):
    """A search word, or a prefix."""

    word: str
    prefix: bool = False


def prefix_with_project(project: UUID, word: str) -> str:
    """Return the word as stored in the index: prefixed with the end of its project's id.

    A word that another project uses very often is thus a different word and does not slow down a
    search. Projects whose ids end alike share words; the row's project separates them.
    """
    return project_token(project) + word


def join_words(project: str, words: Iterable[str]) -> str:
    """Return the column's value: the words between blanks, sorted, so equal sets are equal values.

    `project` is the id as text, as plain SQL returns it.
    """
    return f" {project[-TOKEN_DIGITS:]}".join(["", *sorted(words)]) + " "


def project_token(project: UUID) -> str:
    """Return the end of the project's id, which prefixes its words."""
    return project.hex[-TOKEN_DIGITS:]


@dataclass(frozen=True, slots=True)
class ProjectTerms:
    """Terms of a project, all of which must match."""

    project: UUID
    terms: tuple[SearchTerm, ...]

    def tsquery(self) -> str:
        """Return the terms as a PostgreSQL tsquery."""
        return " & ".join(itertools.chain(*self.tsqueries()))

    def tsqueries(self) -> tuple[list[str], list[str]]:
        """Return the terms as separate tsqueries: whole words, and prefixes."""
        queries = [
            (f"'{prefix_with_project(self.project, term.word)}'{':*' * term.prefix}", term.prefix)
            for term in self.terms
        ]
        return [text for text, prefix in queries if not prefix], [
            text for text, prefix in queries if prefix
        ]

    def match(self) -> str:
        """Return the terms as an SQLite FTS5 query."""
        return " AND ".join(
            f'"{prefix_with_project(self.project, term.word)}"{" *" * term.prefix}'
            for term in self.terms
        )

    def pieces(self) -> list[str]:
        """Return the substrings that the column's value must contain on SQLite."""
        return [
            f" {prefix_with_project(self.project, term.word)}{'' if term.prefix else ' '}"
            for term in self.terms
        ]


class RowIdField(models.BigIntegerField):  # type: ignore[type-arg]  # its set and get types cannot be named
    """A bigint that is SQLite's own row id, which FTS5 refers to."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """Return the column type for the database."""
        return "integer" if connection.vendor == "sqlite" else super().db_type(connection)


class WordsField(models.TextField):  # type: ignore[type-arg]  # as above
    """A column with the values of `join_words`."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """Return the column type for the database."""
        return "tsvector" if connection.vendor == "postgresql" else super().db_type(connection)

    def from_db_value(self, value: str, _expression: Any, connection: BaseDatabaseWrapper) -> str:
        """Return the value of `join_words` again: PostgreSQL quotes words, in another order."""
        if connection.vendor == "sqlite":
            return value
        return " ".join(["", *sorted(word.strip("'") for word in value.split())]) + " "

    def get_placeholder(
        self, _value: Any, _compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> str:
        """Return the SQL expression for a written value."""
        return AS_TSVECTOR.format("%s::text") if connection.vendor == "postgresql" else "%s"


AS_TSVECTOR: Final = "array_to_tsvector(string_to_array(btrim({}), ' '))"


@WordsField.register_lookup
class HasTerms(models.Lookup):
    """`words__hold=Asked(…)`: all terms are among the words."""

    lookup_name = "hold"
    prepare_rhs = False
    rhs: ProjectTerms

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Use the operator that the index serves."""
        column, parameters = self.process_lhs(compiler, connection)
        return f"{column} @@ %s::tsquery", (*parameters, self.rhs.tsquery())

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Test the row's text. To find rows, use the index (store.py)."""
        column, parameters = self.process_lhs(compiler, connection)
        pieces = self.rhs.pieces()
        return (
            "(" + " AND ".join([f"instr({column}, %s) > 0"] * len(pieces)) + ")",
            tuple(part for piece in pieces for part in (*parameters, piece)),
        )


@models.BigIntegerField.register_lookup
@models.UUIDField.register_lookup
class InList(models.Lookup):
    """`column__listed=[…]`: the value is one of many numbers or ids, sent as one parameter.

    Django inspects every item of a list or tuple; array("q", …) avoids that.
    """

    lookup_name = "listed"
    prepare_rhs = False
    rhs: "Sequence[int] | Sequence[UUID]"

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Compare with an array."""
        column, parameters = self.process_lhs(compiler, connection)
        kind = "uuid" if self._is_of_ids() else "bigint"
        return f"{column} = ANY (%s::{kind}[])", (
            *parameters,
            "{" + ",".join(map(str, self.rhs)) + "}",
        )

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Compare with a JSON document."""
        column, parameters = self.process_lhs(compiler, connection)
        items = [f'"{value.hex}"' if isinstance(value, UUID) else str(value) for value in self.rhs]
        return f"{column} IN (SELECT value FROM json_each(%s))", (
            *parameters,
            f"[{','.join(items)}]",
        )

    def _is_of_ids(self) -> bool:
        return isinstance(self.lhs.output_field, models.UUIDField)


@models.BigIntegerField.register_lookup
class InSubqueryArray(models.Lookup):
    """`column__gathered=rows.values(…)`: the value is in a subquery that is executed first.

    For 100,000 values, PostgreSQL would otherwise read and join the complete table.
    """

    lookup_name = "gathered"
    prepare_rhs = False

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Compare with an array, so that the column's index is scanned once."""
        column, parameters = self.process_lhs(compiler, connection)
        text, parameters_of_rows = self.process_rhs(compiler, connection)
        return f"{column} = ANY (ARRAY{text})", (*parameters, *parameters_of_rows)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Use a plain IN: SQLite executes the subquery first by itself."""
        column, parameters = self.process_lhs(compiler, connection)
        text, parameters_of_rows = self.process_rhs(compiler, connection)
        return f"{column} IN {text}", (*parameters, *parameters_of_rows)


class OldestPosition(models.Expression):
    """The position below which no effect has all terms; computed only if a row is compared."""

    output_field = models.BigIntegerField()

    def __init__(self, terms: ProjectTerms) -> None:
        super().__init__()
        self.terms = terms

    def as_postgresql(
        self, _compiler: SQLCompiler, _connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Look up the oldest position of the whole words; prefixes cost more than they save."""
        whole_words, _begun = self.terms.tsqueries()
        if not whole_words:
            return "0", ()
        text = (
            "(SELECT investigation_oldest_of_words(%s, %s, min(position), max(position))"
            " FROM investigation_effecttext)"
        )
        return text, (whole_words, self.terms.project)

    def as_sqlite(
        self, _compiler: SQLCompiler, _connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Use the index that finds the rows."""
        text = (
            "SELECT rowid FROM investigation_wordindex"
            " WHERE investigation_wordindex MATCH %s ORDER BY rowid LIMIT 1"
        )
        return f"coalesce(({text}), 0)", (self.terms.match(),)
