"""Journal entries of administrative changes: members, tokens, repositories, tools.

Facts hold only ids and enums. Names and other free text are in the body, which can be erased.
"""

from collections.abc import Mapping
from uuid import UUID

from db.clock import now_us
from db.ids import new_uuid7
from journal import entries


def record_admin_entry(
    project: UUID,
    kind: str,
    *,
    actor: str,
    subject: UUID | None,
    facts: Mapping[str, object],
    words: Mapping[str, object],
) -> int:
    """Append one `admin.*` entry and return its position.

    `actor` is a pseudonym, or "gatebook" for a command. Expects the open transaction that changes
    the rows.
    """
    appended = entries.record_system_entry(
        project,
        kind,
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json({"kind": kind, **words}),
        received_us=now_us(),
        actor=actor,
        facts=entries.dump_sorted_json(facts),
        subject=subject,
    )
    return appended.position
