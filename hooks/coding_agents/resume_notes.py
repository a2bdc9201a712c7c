"""What a resumed client and its user must know: effects that may have happened."""

from typing import Final
from uuid import UUID

from api.endpoint import Call
from db.clock import now_us
from hooks.coding_agents.call_intents import LOCAL_TOOLS
from hooks.coding_agents.call_words import build_url
from hooks.coding_agents.hook_sessions import list_family
from ledger.models import Effect
from ledger.open_effects import MAY_BE_OPEN
from ledger.verdicts import evaluate, table
from shell.command_effects import CODE_TOOL, EDIT_TOOL, READ_TOOL

MAX_NOTES: Final = 10
_LOCAL_TOOLS: Final = sorted({READ_TOOL, EDIT_TOOL, CODE_TOOL}.union(*LOCAL_TOOLS.values()))


def describe_open_effects(call: Call, session: UUID) -> str:
    """Return a text for the model about dispatched effects without a result; empty if none.

    A client tells its model after a crash that a call was aborted, although it may have happened.
    Calls that change nothing outside the machine are left out.
    """
    family = list_family(call.project, session)
    rows = list(
        Effect.objects.filter(MAY_BE_OPEN, session__in=family, state="dispatched")
        .exclude(tool__in=_LOCAL_TOOLS)
        .order_by("-opened_position")[: MAX_NOTES + 1]
    )
    if not rows:
        return ""
    verdicts = evaluate.evaluate_effects(call.project, rows, now_us(), None)
    lines = [
        f"- {table.describe_verdict(verdicts[row.id].verdict, f'{row} {row.tool}')}"
        f" {build_url('effect', row.pk)}"
        for row in rows[:MAX_NOTES]
    ]
    if len(rows) > MAX_NOTES:
        lines.append("- and more; see the page of the session.")
    heading = "Gatebook: these calls of this session began and no result was reported."
    return "\n".join([heading, *lines])
