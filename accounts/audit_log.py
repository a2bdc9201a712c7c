"""Journal entries of administrative changes: members, tokens, repositories, tools.

Facts hold only ids and enums. Names and other free text are in the body, which can be erased.
"""

from collections.abc import Mapping
from uuid import UUID

import orjson

from db.clock import now_us
from db.ids import new_uuid7
from journal import entries


def record_admin_entry(
    project: UUID,
    kind: str,
    *,
    actor: str,
    subject: UUID | None,
    facts: Mapping[str, str | int | Mapping[str, int] | None],
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
        text=orjson.dumps({"kind": kind, **words}, option=orjson.OPT_SORT_KEYS).decode(),
        received_us=now_us(),
        actor=actor,
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        subject=subject,
    )
    return appended.position
