"""What a call is about: its recipients, orders, files, tables and accounts. Pure.

Two requests are similar if they name the same of these. A value that is missing is not equal to
another missing one.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from db import long_numbers

MAX_VALUES: Final = 64  # of one call
_MAX_CHARACTERS: Final = 300  # of a value; longer ones are content
_MAX_SCANNED: Final = 4_096  # characters of a text that are searched for names
# Kind -> names of arguments whose values are of this kind, from the most telling.
KIND_ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {
    "recipient": ("to", "cc", "bcc", "recipient", "recipients", "email", "emails", "phone"),
    "order": ("order", "order_id", "orders", "invoice", "invoice_id", "payment", "payment_id"),
    "customer": ("customer", "customer_id", "payee"),
    "person": ("user", "user_id", "username", "member"),
    "account": ("account", "account_id", "iban", "subscription", "destination_account"),
    "ticket": ("ticket", "ticket_id", "issue", "issue_id", "issue_number", "pull_request", "pr"),
    "table": ("table", "tables", "table_name", "collection", "dataset"),
    "file": (
        *("file", "files", "path", "paths", "file_path", "notebook_path", "filename"),
        *("attachment", "attachments", "key", "object"),
    ),
    "cluster": ("cluster", "context", "kube_context"),
    "host": ("host", "hostname", "domain", "server", "url", "endpoint"),
    "volume": ("volume", "volumes", "disk", "bucket", "instance", "instance_id", "pod", "service"),
    "commit": ("commit", "sha", "revision", "image", "digest", "version", "tag"),
}
_KIND_OF_ARGUMENT: Final = {name: kind for kind, names in KIND_ARGUMENTS.items() for name in names}
# Not the user of a URL or DSN: postgres://ops@host.
_ADDRESS: Final = re.compile(r"(?<![^\s<>,;\"'()])[^\s<>,;\"'()/:]+@[\w-]+(?:\.[\w-]+)+")
_TABLE: Final = re.compile(
    r"\b(?:from|into|update|table|join|truncate)\s+(?:if\s+(?:not\s+)?exists\s+|only\s+)?"
    r"[\"`\[]?([a-z_][\w$.]*)",
    re.IGNORECASE,
)
_STATEMENT: Final = re.compile(
    r"\s*(?:with|select|insert|update|delete|drop|alter|truncate|create|grant|merge)\b",
    re.IGNORECASE,
)


def describe_statement(value: Any) -> str:
    """Return verb and first table of an SQL statement: DELETE invoices; "" for other values."""
    if not isinstance(value, str) or not _STATEMENT.match(value):
        return ""
    table = _TABLE.search(value[:_MAX_SCANNED])
    verb = value.split(None, 1)[0].upper()
    return f"{verb} {table[1]}" if table is not None else verb


def find_identities(
    arguments: Any, target: Mapping[str, Any] | None = None
) -> dict[str, frozenset[str]]:
    """Return the identifiers that a call names, by kind; at most MAX_VALUES of them.

    `target` holds the columns of its target: ref with repository, and resource.
    """
    by_kind: dict[str, set[str]] = {}
    for count, (kind, value) in enumerate(_iterate_identities(arguments, target or {})):
        if count >= MAX_VALUES:
            break
        by_kind.setdefault(kind, set()).add(value)
    return {kind: frozenset(values) for kind, values in by_kind.items()}


def _iterate_identities(arguments: Any, target: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if target.get("ref"):
        yield "branch", f"{target.get('repository') or ''} {target['ref']}"
    if target.get("resource"):
        yield "target", str(target["resource"])
    yield from _iterate_named("", arguments, depth=0)


def _iterate_named(name: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        if depth < 4:
            for key, item in value.items():
                yield from _iterate_named(str(key).casefold(), item, depth + 1)
    elif isinstance(value, list):
        for item in value[:MAX_VALUES]:
            yield from _iterate_named(name, item, depth + 1 if isinstance(item, dict) else depth)
    elif isinstance(value, bool) or value is None:
        return
    else:
        text = value if isinstance(value, str) else long_numbers.to_json_bytes(value).decode()
        yield from _iterate_text(_KIND_OF_ARGUMENT.get(name), text)


def _iterate_text(kind: str | None, text: str) -> Iterator[tuple[str, str]]:
    words = text.strip()
    if kind == "recipient" or (kind is None and "@" in words[:_MAX_SCANNED]):
        addresses = _ADDRESS.findall(words[:_MAX_SCANNED])
        yield from (("recipient", address.casefold()) for address in addresses)
        if kind is not None and not addresses and 0 < len(words) <= _MAX_CHARACTERS:
            yield kind, words.casefold()
    elif kind is not None and 0 < len(words) <= _MAX_CHARACTERS:
        yield kind, words
    elif kind is None and _STATEMENT.match(words):
        tables = _TABLE.findall(words[:_MAX_SCANNED])
        yield from (("table", table.casefold()) for table in tables)
