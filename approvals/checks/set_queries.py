"""Load the requests that stand beside those of a page, to compare sets of one shape."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from approvals.checks.checked_request import CheckedRequest, build_checked_request
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
_IDS: Final = frozenset(
    ("id", "effect_id", "session_id", "agent_id", "policy_set_id", "repository_id")
)
_NEAR: Final = (
    "SELECT id FROM (SELECT id FROM approvals_gate WHERE project_id = %s AND agent_id = %s"
    " AND tool = %s AND opened_position {comparison} %s"
    " ORDER BY opened_position {order} LIMIT {most}) AS {name}"
)


def load_siblings(project: UUID, requests: Sequence[CheckedRequest]) -> list[CheckedRequest]:
    """Load waiting and approved requests of the same agents and tools, near those of a page.

    What was approved still counts: the last of a set stands out after the others are approved.

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
    columns = [f"gate.{name}" for name in _GATE_COLUMNS]
    columns += [f"effect.{name}" for name in _EFFECT_COLUMNS]
    rows = raw_sql.fetch_rows(
        f"SELECT {', '.join(columns)}, body.text FROM ({' UNION ALL '.join(parts)}) AS near"
        " JOIN approvals_gate AS gate ON gate.id = near.id"
        " JOIN ledger_effect AS effect ON effect.id = gate.effect_id"
        " JOIN journal_body AS body ON body.entry_id = gate.plan_position"
        " WHERE (gate.status IN ('approved', 'used')"
        "  OR (gate.status = 'pending' AND gate.decide_by_us >= %s))"
        f" AND length(body.text) <= {_PLAN_CHARACTERS}",
        [*parameters, now_us()],
    )
    listed = {request.gate for request in requests}
    return [sibling for sibling in map(_read_row, rows) if sibling.gate not in listed]


class _Columns:
    """The columns of a row by name."""

    def __init__(self, names: Sequence[str], values: Sequence[Any]) -> None:
        for name, value in zip(names, values, strict=True):
            setattr(self, name, to_uuid(value) if name in _IDS and value is not None else value)


def _read_row(row: Sequence[Any]) -> CheckedRequest:
    split = len(_GATE_COLUMNS)
    gate = _Columns(_GATE_COLUMNS, row[:split])
    effect = _Columns(_EFFECT_COLUMNS, row[split:-1])
    return build_checked_request(gate, effect, summaries.parse_body(row[-1] or ""))
