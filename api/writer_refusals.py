"""Answers to agents that may not write to a session: OTHER_AGENT, LEASE_LOST, SESSION_ENDED."""

from collections.abc import Callable
from typing import Final

from api import idempotency, lease_conflicts
from api.problems import Problem
from api.reply import Reply
from api.serializers.leases import lease_to_json
from journal import entries
from sessions.writers import HELD_BY_ANOTHER_TEXT, WriterNotAllowed, WriterStatus

OTHER_AGENT_TEXT: Final = (
    "This session belongs to another agent. Leave the work to that agent, or ask an administrator"
    " to put both agents in one team."
)
SESSION_ENDED_TEXT: Final = "The session has ended. Open a new session to continue the work."


def refuse_writer(refused: WriterNotAllowed, replay: Callable[[], Reply | None]) -> Reply:
    """Refuse an agent that may not write to the session, and record the attempt.

    A command that has succeeded before gets its stored response.
    """
    if idempotency.has_stored_response(refused.origin) and (reply := replay()) is not None:
        return reply
    entries.append_entries([refused.draft], refused.origin.received_us)
    if refused.standing is WriterStatus.OTHER_AGENT:
        detail = OTHER_AGENT_TEXT
        return Reply(403, Problem(403, "OTHER_AGENT", detail).as_dict(), kept=False)
    body = Problem(409, "LEASE_LOST", HELD_BY_ANOTHER_TEXT).as_dict()
    lease = lease_conflicts.load_fencing_lease(
        refused.origin.project, refused.session, refused.task
    )
    return Reply(
        409,
        body if lease is None else body | {"lease": lease_to_json(lease)},
        kept=False,
    )
