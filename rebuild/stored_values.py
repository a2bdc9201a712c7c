"""Read each column as SQLite stores it: any column there takes a value of any type and form.

Python may read such a value as nothing, as equal to another, or not at all. So one query of each
table names the values that have a form which Gatebook never writes. PostgreSQL refuses them all.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from django.apps import apps
from django.db import connection
from django.db.models import Field, Model

from db import raw_sql
from rebuild.row_comparison import RowDifference

MAX_NAMED_VALUES: Final = 1_000  # rows of a table
_SHOWN: Final = 80  # characters of a value


class _Form(NamedTuple):
    """How the values of a kind of field are stored: what to call them, and the others in SQL."""

    words: str
    is_other: str  # over {column}


_FORMS: Final[dict[str, _Form]] = {
    "text": _Form(
        "a text in UTF-8",
        "typeof({column}) <> 'text' OR NOT gatebook_is_utf8(CAST({column} AS blob))",
    ),
    # The database compares texts, and Python UUIDs: another spelling is another row, and the same.
    "id": _Form(
        "a UUID of 32 characters from 0 to 9 and a to f",
        "typeof({column}) <> 'text' OR length(CAST({column} AS blob)) <> 32"
        " OR {column} GLOB '*[^0-9a-f]*'",
    ),
    "number": _Form("a whole number", "typeof({column}) <> 'integer'"),
    "flag": _Form("0 or 1", "typeof({column}) <> 'integer' OR {column} NOT IN (0, 1)"),
    "bytes": _Form("bytes", "typeof({column}) <> 'blob'"),
    "time": _Form(
        "a date with a time",
        "typeof({column}) <> 'text' OR NOT gatebook_is_time(CAST({column} AS blob))",
    ),
    "json": _Form(
        "JSON in UTF-8",
        "typeof({column}) <> 'text' OR NOT gatebook_is_utf8(CAST({column} AS blob))"
        " OR NOT json_valid({column})",
    ),
}
_FORM_OF: Final = {
    **dict.fromkeys(("CharField", "TextField", "GenericIPAddressField"), "text"),
    **dict.fromkeys(
        (
            *("AutoField", "BigAutoField", "BigIntegerField", "IntegerField"),
            *("PositiveIntegerField", "SmallIntegerField"),
        ),
        "number",
    ),
    "UUIDField": "id",
    "BooleanField": "flag",
    "BinaryField": "bytes",
    "DateTimeField": "time",
    "JSONField": "json",
}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)


def find_unreadable_values(tables: Sequence[str] = ()) -> Iterator[RowDifference]:
    """Yield each stored value of a form that Gatebook never writes, of all tables or of some."""
    if connection.vendor != "sqlite":
        return
    connection.ensure_connection()
    connection.connection.create_function("gatebook_is_utf8", 1, _is_utf8, deterministic=True)
    connection.connection.create_function("gatebook_is_time", 1, _is_time, deterministic=True)
    for model in apps.get_models(include_auto_created=True):
        if not tables or model._meta.db_table in tables:
            yield from _read_values(model)


def _read_values(model: type[Model]) -> Iterator[RowDifference]:
    fields = [(field, form) for field in model._meta.concrete_fields if (form := _find_form(field))]
    table, key = model._meta.db_table, model._meta.pk
    if not fields:
        return
    faults = [_write_fault(field, form) for field, form in fields]
    values = ", ".join(
        f'CASE WHEN {fault} THEN substr(quote("{field.column}"), 1, {_SHOWN}) END'
        for fault, (field, _form) in zip(faults, fields, strict=True)
    )
    text = (
        f'SELECT "{key.column}", {values} FROM "{table}" WHERE {" OR ".join(faults)}'
        f" LIMIT {MAX_NAMED_VALUES}"
    )
    for stored, *shown in raw_sql.fetch_rows(text):
        named = stored.hex() if isinstance(stored, bytes) else stored
        for value, (field, form) in zip(shown, fields, strict=True):
            if value is not None:
                yield RowDifference(
                    "unreadable",
                    table,
                    None,
                    None,
                    {key.attname: named},
                    0,
                    field.attname,
                    value,
                    form.words,
                )


def _find_form(field: "Field[Any, Any]") -> _Form | None:
    """Return the form of a column; that of a reference is that of the column it refers to."""
    while field.is_relation:
        field = field.target_field  # type: ignore[attr-defined]
    return _FORMS.get(_FORM_OF.get(field.get_internal_type(), ""))


def _write_fault(field: "Field[Any, Any]", form: _Form) -> str:
    """Return the condition that a column has another form."""
    column = f'"{field.column}"'
    if field.null:
        return f"({column} IS NOT NULL AND ({form.is_other.format(column=column)}))"
    return f"({form.is_other.format(column=column)})"


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_time(value: bytes) -> bool:
    try:
        text = value.decode()
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return _TIME.fullmatch(text) is not None


@contextmanager
def read_leniently() -> Iterator[None]:
    """Let the connection return what it cannot decode as another text, instead of an error.

    So such a value differs from every value that the journal gives, and the check goes on.
    """
    if connection.vendor != "sqlite":
        yield
        return
    connection.ensure_connection()
    raw, operations = connection.connection, cast(Any, connection.ops)
    factory, convert = raw.text_factory, operations.convert_uuidfield_value
    raw.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
    operations.convert_uuidfield_value = partial(_convert_uuid, convert)
    try:
        yield
    finally:
        raw.text_factory = factory
        del operations.convert_uuidfield_value


def _convert_uuid(convert: Callable[..., Any], value: Any, *arguments: Any) -> Any:
    try:
        converted: UUID | None = convert(value, *arguments)
    except (ValueError, AttributeError, TypeError):
        return value
    return converted
