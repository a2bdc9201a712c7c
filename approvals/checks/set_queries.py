"""Load the requests that stand beside those of a page, to compare sets of one shape."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from django.db import connection

from approvals.checks.checked_request import CheckedRequest, build_checked_request
from approvals.checks.outliers import MIN_OTHERS, build_shape
from approvals.review.warnings import REQUEST_IDENTITY
from db import raw_sql
from db.clock import now_us
from journal import summaries
from ledger.store.effect_rows import to_uuid

_NEWEST: Final = 40  # gates of one agent and tool on each side of a request, of any status
_MOST: Final = 400  # gates on each side for all requests of a page
_LEAST: Final = 8
_PLAN_CHARACTERS: Final = 8192  # longer plans are not compared
_GATE_COLUMNS: Final = (
    "id",
    "effect_id",
    "session_id",
    "agent_id",
    "opened_position",
    "plan_position",
    "requested_at_us",
    "tool",
    "repository_name",
    "reversibility",
    "risk",
    "policy_set_id",
    "rule",
)
_EFFECT_COLUMNS: Final = (*REQUEST_IDENTITY, "ref", "ref_class")
_GATE_IDS: Final = ("id", "effect_id", "session_id", "agent_id", "policy_set_id")
_SESSION, _AGENT, _TOOL = map(_GATE_COLUMNS.index, ("session_id", "agent_id", "tool"))
_COLUMNS: Final = (
    *(f"gate.{name}" for name in _GATE_COLUMNS),
    *(f"effect.{name}" for name in _EFFECT_COLUMNS),
    "body.text",
)
_NEAR: Final = (
    "SELECT id FROM (SELECT id FROM approvals_gate WHERE project_id = %s AND agent_id = %s"
    " AND tool = %s AND opened_position {comparison} %s"
    " ORDER BY opened_position {order} LIMIT {most}) AS {name}"
)


def load_siblings(project: UUID, requests: Sequence[CheckedRequest]) -> list[CheckedRequest]:
    """Load waiting and approved requests of the same agents and tools, near those of a page.

    What was approved still counts: the last of a set stands out after the others are approved.
    Requests of other sessions are left out where the sessions of the page are compared alone.

    One query for a page. It reads at most 80 gates by index for one agent and tool, and at most
    16 gates for each of fifty.
    """
    anchors: dict[tuple[UUID, str], int] = {}
    for request in requests:
        key = request.agent, request.tool
        anchors[key] = max(anchors.get(key, 0), request.opened_position)
    if not anchors:
        return []
    most = max(_LEAST, min(_NEWEST, _MOST // len(anchors)))
    parts: list[str] = []
    parameters: list[Any] = []
    for (agent, tool), position in anchors.items():
        for comparison, order in (("<=", "DESC"), (">", "ASC")):
            name = f"near_{len(parts)}"
            parts.append(_NEAR.format(comparison=comparison, order=order, most=most, name=name))
            ids = raw_sql.vendor_id(project), raw_sql.vendor_id(agent)
            parameters += [*ids, tool, position]
    rows = raw_sql.fetch_rows(
        f"SELECT {', '.join(_COLUMNS)} FROM ({' UNION ALL '.join(parts)}) AS near"
        f"{_join_row('approvals_gate', 'gate', 'gate.id = near.id')}"
        f"{_join_row('ledger_effect', 'effect', 'effect.id = gate.effect_id')}"
        f"{_join_row('journal_body', 'body', 'body.entry_id = gate.plan_position')}"
        " WHERE (gate.status IN ('approved', 'used')"
        "  OR (gate.status = 'pending' AND gate.decide_by_us >= %s))"
        f" AND gate.id NOT IN (SELECT wanted.key FROM {raw_sql.wanted_table('uuid')})"
        f" AND length(body.text) <= {_PLAN_CHARACTERS}",
        [
            *parameters,
            now_us(),
            raw_sql.to_array_parameter(
                str(raw_sql.vendor_id(request.gate)) for request in requests
            ),
        ],
    )
    return _read_siblings(rows, requests)


def _join_row(table: str, name: str, condition: str) -> str:
    """Return a join with the row of a key; PostgreSQL would read some tables as a whole."""
    if connection.vendor == "postgresql":
        rows = f"SELECT * FROM {table} AS {name} WHERE {condition} LIMIT 1"
        return f" CROSS JOIN LATERAL ({rows}) AS {name}"
    return f" JOIN {table} AS {name} ON {condition}"


def _read_siblings(
    rows: Sequence[Sequence[Any]], requests: Sequence[CheckedRequest]
) -> list[CheckedRequest]:
    """Read the rows that complete a set: first of the sessions of the page, then others.

    A set of enough requests in one session is compared alone (approvals/checks/outliers.py).
    """
    sessions = {raw_sql.vendor_id(request.session) for request in requests}
    siblings = [_read_row(row) for row in rows if row[_SESSION] in sessions]
    sizes = Counter(map(_find_set, (*requests, *siblings)))
    small = {
        (raw_sql.vendor_id(request.agent), request.tool)
        for request in requests
        if sizes[_find_set(request)] <= MIN_OTHERS
    }
    return siblings + [
        _read_row(row)
        for row in rows
        if row[_SESSION] not in sessions and (row[_AGENT], row[_TOOL]) in small
    ]


def _find_set(request: CheckedRequest) -> tuple[Any, ...]:
    return request.agent, request.session, build_shape(request)


def _read_row(row: Sequence[Any]) -> CheckedRequest:
    gate = SimpleNamespace(**dict(zip(_GATE_COLUMNS, row, strict=False)))
    effect = SimpleNamespace(**dict(zip(_EFFECT_COLUMNS, row[len(_GATE_COLUMNS) :], strict=False)))
    for name in _GATE_IDS:
        setattr(gate, name, to_uuid(getattr(gate, name)))
    effect.repository_id = to_uuid(effect.repository_id)
    return build_checked_request(gate, effect, summaries.parse_body(row[-1] or ""))
