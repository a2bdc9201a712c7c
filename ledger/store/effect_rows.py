"""Effect and Attempt as plain rows, for the fold and set-wise SQL."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, Final, cast
from uuid import UUID

import orjson

from db.raw_sql import vendor_id as vendor_id  # modules that read rows by plain SQL use it


@dataclass(slots=True)
class EffectRow:
    """The columns of ledger.Effect, by name."""

    id: UUID
    project_id: UUID
    session_id: UUID
    agent_id: UUID
    effect_key: str
    opened_position: int
    received_us: int
    changed_us: int
    task_id: UUID | None = None
    tool: str = ""
    claimed_class: str = ""
    intent_digest: str = ""
    call_id: str = ""
    turn: str = ""
    repository_id: UUID | None = None
    ref: str = ""
    moved_refs: str = ""
    ref_class: str = ""
    ref_patterns_version: int | None = None
    environment: str = ""
    resource: str = ""
    parent_effect_id: UUID | None = None
    compensates_id: UUID | None = None
    undoes: int | None = None
    lane: str = "evidence"
    plan_position: int | None = None
    redactions: int = 0
    policy_outcome: str = ""
    policy_rule: str = ""
    policy_tool_class: str = ""
    policy_parts_digest: str = ""
    policy_enforced: bool = False
    permission: str = "none"
    permission_basis: str = ""
    permission_ref: str = ""
    permission_until_us: int | None = None
    saved_permission: str = ""
    saved_permission_until_us: int | None = None
    state: str = "planned"
    outcome: str = ""
    attempt_count: int = 0
    failure_reason: str = ""
    external_reference: str = ""
    violates: bool = False
    planned_at_us: int | None = None
    dispatched_at_us: int | None = None
    settled_at_us: int | None = None
    deadline_us: int | None = None
    planned_mark: str = ""
    superseded_mark: str = ""
    resolved_mark: str = ""
    resolution: str = ""
    compensated: bool = False
    undone: int = 0
    confirmed_by: str = ""
    confirmed_mark: str = ""
    version: int = 0  # 0: not stored yet
    replanned: bool = False  # no column: the plan's columns changed and must be written
    spent_by: int = 0  # no column: the attempt that now uses the granted permission
    # No column: a suspended permission applies again, to the attempt it was for.
    recalled: bool = False
    # No column: the reference that a person gave with "it happened"; the entry's body keeps it.
    told_reference: str = ""
    # No column: the replaced plans, to be archived.
    gave_way: list[dict[str, Any]] | None = None

    @property
    def enforced_outcome(self) -> str:
        """The policy's outcome for the plan if it was enforced, otherwise empty."""
        return self.policy_outcome if self.policy_enforced else ""

    def is_expired(self, now_us: int) -> bool:
        """True if the permission or its request has expired; no entry marks the expiry."""
        return self.permission_until_us is not None and self.permission_until_us < now_us


@dataclass(slots=True)
class AttemptRow:
    """The columns of ledger.Attempt except its id, by name."""

    project_id: UUID
    effect_id: UUID
    number: int
    remote_key: str
    permission: str
    replaces: int | None = None
    verdict_row: str = ""
    process: str = ""
    lease_epoch: int | None = None
    lane: str = "evidence"
    is_open: bool = False
    replaced: bool = False
    outcome: str = ""
    failure_reason: str = ""
    external_reference: str = ""
    dispatch_key: str = ""
    received_us: int | None = None
    heard_us: int | None = None
    dispatched_at_us: int | None = None
    acknowledged_at_us: int | None = None
    failed_at_us: int | None = None
    answer_position: int | None = None
    dispatched_mark: str = ""
    acknowledged_mark: str = ""
    failed_mark: str = ""
    # No column: the stored values of the columns.
    stored: tuple[object, ...] = field(default=(), compare=False)


_POSTGRESQL_TYPES: Final[dict[object, str]] = {
    UUID: "uuid",
    UUID | None: "uuid",
    str: "text",
    int: "bigint",
    int | None: "bigint",
    bool: "boolean",
}


_NO_COLUMNS: Final = ("replanned", "spent_by", "recalled", "told_reference", "gave_way", "stored")


def row_columns(row: type[EffectRow] | type[AttemptRow]) -> tuple[str, ...]:
    """Return column names in the order of the dataclass."""
    return tuple(column.name for column in fields(row) if column.name not in _NO_COLUMNS)


def _types(row: type[EffectRow] | type[AttemptRow]) -> dict[str, str]:
    """Return the PostgreSQL type of each column, by name."""
    stored = row_columns(row)
    return {
        column.name: _POSTGRESQL_TYPES[column.type]
        for column in fields(row)
        if column.name in stored
    }


def given_table(row: type[EffectRow] | type[AttemptRow], names: tuple[str, ...]) -> str:
    """Return the FROM clause that reads a `rows_to_json` parameter as the table `given_table`."""
    types = _types(row)
    numbered = ", ".join(f'"{number}" {types[name]}' for number, name in enumerate(names))
    records = f"json_to_recordset(%s::json) AS numbered({numbered})"
    return f"(SELECT * FROM {records}) AS given({', '.join(names)})"


def rows_to_json(rows: Sequence[EffectRow] | Sequence[AttemptRow], names: tuple[str, ...]) -> str:
    """Serialize `names` of each row as JSON with short numeric keys."""
    values, keys = attrgetter(*names), _KEYS[: len(names)]
    return orjson.dumps([dict(zip(keys, values(row), strict=True)) for row in rows]).decode()


_KEYS: Final = [str(number) for number in range(len(fields(EffectRow)))]


def typed_placeholders(row: type[EffectRow] | type[AttemptRow], names: tuple[str, ...]) -> str:
    """Return typed placeholders of `names`, for a SELECT without a table."""
    types = _types(row)
    return ", ".join(f"%s::{types[name]}" for name in names)


@cache
def _reader(row: Any, names: tuple[str, ...]) -> tuple[Callable[[Any], tuple[Any, ...]], list[int]]:
    """Return a getter of `names`, and the indexes of those that are UUIDs."""
    uuids = {name for name, kind in _types(row).items() if kind == "uuid"}
    return attrgetter(*names), [index for index, name in enumerate(names) if name in uuids]


def rows_to_parameters(
    rows: Sequence[EffectRow] | Sequence[AttemptRow], names: tuple[str, ...]
) -> list[list[Any]]:
    """Return `names` of each row as SQL parameters of either vendor."""
    if not rows:
        return []
    read, uuids = _reader(cast(Any, type(rows[0])), names)
    records = []
    for row in rows:
        values = list(read(row))
        for index in uuids:
            if values[index] is not None:
                values[index] = values[index].hex
        records.append(values)
    return records


@lru_cache(maxsize=8192)
def _from_hex(value: str) -> UUID:
    return UUID(value)  # cached: sessions, projects and agents repeat in every row


def to_uuid(value: Any) -> UUID | None:
    """Convert a UUID column as raw SQL returns it on either vendor."""
    if value is None or isinstance(value, UUID):
        return value
    return _from_hex(value)
