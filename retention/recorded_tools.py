"""Compares the tools of effects with their plans, before a rule for a tool decides what expires."""

from typing import Final
from uuid import UUID

from db import raw_sql
from journal.entries import compute_commitment
from journal.summaries import parse_body

_PLANS: Final = (
    "SELECT CAST(plan.effect AS text), effect.tool, plan.body_commit, body.salt, body.text"
    " FROM journal_entry plan JOIN ledger_effect effect ON effect.id = plan.effect"
    " LEFT JOIN journal_body body ON body.entry_id = plan.position"
    " WHERE plan.kind = 'effect.planned' AND plan.lane IN ('command', 'evidence')"
    " AND plan.effect IN (SELECT entry.effect FROM journal_entry entry"
    " WHERE entry.position > %s AND entry.position <= %s AND entry.project = %s)"
)


class ToolNotRecorded(Exception):
    """An effect has another tool than its plans name."""


def require_recorded_tools(project: UUID, after: int, upto: int) -> None:
    """Compare the tools of all effects of a window with their plans. One query.

    A row can be changed by the owner of the database; sealed entries cannot, without a trace. An
    effect of which a plan has no body any more is not compared. Raises ToolNotRecorded.
    """
    stored, planned, unreadable = dict[str, str](), dict[str, set[str]](), set[str]()
    rows = raw_sql.fetch_rows(_PLANS, [after, upto, raw_sql.vendor_id(project)])
    for effect, tool, commitment, salt, text in rows:
        if text is None or compute_commitment(bytes(salt), text) != bytes(commitment or b""):
            unreadable.add(effect)
            continue
        stored[effect] = tool
        planned.setdefault(effect, set()).add(parse_body(text).get("tool") or "")
    for effect in stored.keys() - unreadable:
        if stored[effect] not in planned[effect]:
            raise ToolNotRecorded(
                f"No plan of the effect {UUID(effect)} names its tool {stored[effect]!r}. Nothing"
                " was removed. Find who changed the row, then run `manage.py rebuild`."
            )
