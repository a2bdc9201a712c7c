"""Which effects of a session have to be settled by whoever goes on with it, found by the index effect_open_intent."""

from typing import Final
from uuid import UUID

from django.db.models import BooleanField, Exists, F, Func, OuterRef, Q, QuerySet

from journal.models import Entry
from ledger.models import Effect
from sessions import leases


def to_settle(session: UUID) -> "QuerySet[Effect]":
    """The effects of a session that whoever goes on with it must settle: what may have happened, and what may still.

    Found by an index, however many effects the session has. Three marks tell `judge` what it need not ask for.
    """
    undoing = Effect.objects.filter(compensates=OuterRef("id"), lane="command")
    fenced = Entry.objects.filter(effect=OuterRef("id"), kind="integrity.fenced", lane="system")
    held = leases.read().filter(
        Q(session=OuterRef("session"), kind="session") | Q(task=OuterRef("task"), kind="task")
    )
    rows = Effect.objects.filter(MAY_BE_OPEN, session=session).filter(NEEDS_SETTLING)
    return rows.annotate(
        has_undoing=Exists(undoing), has_fenced=Exists(fenced), has_lease=Exists(held)
    )


# The condition of the index effect_open_intent, word for word and with its constants: SQLite sees it in no other form.
MAY_BE_OPEN: Final = Func(
    Func(F("state"), template="%(expressions)s IN ('planned', 'dispatched', 'failed')"),
    Func(F("outcome"), template="%(expressions)s = 'unknown'"),
    Func(F("resolution"), template="%(expressions)s = 'compensate'"),
    template="(%(expressions)s)",
    arg_joiner=" OR ",
    output_field=BooleanField(),
)


# Released and unanswered, or answered and still not known; or not begun, and nobody has said no.
IN_DOUBT: Final = (
    Q(state="dispatched")
    | Q(state="failed", outcome="unknown")
    | Q(state="acknowledged", outcome="unknown")
)
# A rejected one may have been undone so that it is done anew, and an attempt before the rejected one may have happened.
_HALF_WAY: Final = Q(state="failed", attempt_count__gt=1) | Q(state="failed", undone__gt=0)
# Known to have happened, and a person has asked for its compensation.
_TO_BE_UNDONE: Final = Q(state="acknowledged", resolution="compensate")
_NOT_BEGUN: Final = Q(state="planned", leave__in=("granted", "pending", "held", "used"))
NEEDS_SETTLING: Final = IN_DOUBT | _HALF_WAY | _TO_BE_UNDONE | _NOT_BEGUN
