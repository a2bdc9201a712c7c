"""Effects of a session that must be settled before it continues."""

from typing import Final
from uuid import UUID

from django.db.models import BooleanField, Exists, F, Func, OuterRef, Q, QuerySet

from journal.models import Entry
from ledger.models import Effect
from sessions import lease_queries


def select_effects_to_settle(session: UUID) -> "QuerySet[Effect]":
    """Return the session's effects that may have happened or may still happen.

    Found by an index. Three annotations spare the evaluation queries.
    """
    undoing = Effect.objects.filter(compensates=OuterRef("id"), lane="command")
    fenced = Entry.objects.filter(effect=OuterRef("id"), kind="integrity.fenced", lane="system")
    held = lease_queries.query_leases().filter(
        Q(session=OuterRef("session"), kind="session") | Q(task=OuterRef("task"), kind="task")
    )
    rows = Effect.objects.filter(MAY_BE_OPEN, session=session).filter(NEEDS_SETTLING)
    return rows.annotate(
        has_undoing=Exists(undoing), has_fenced=Exists(fenced), has_lease=Exists(held)
    )


# The literal condition of the index effect_open_intent: SQLite matches the index in no other form.
MAY_BE_OPEN: Final = Func(
    Func(F("state"), template="%(expressions)s IN ('planned', 'dispatched', 'failed')"),
    Func(F("outcome"), template="%(expressions)s = 'unknown'"),
    Func(F("resolution"), template="%(expressions)s = 'compensate'"),
    template="(%(expressions)s)",
    arg_joiner=" OR ",
    output_field=BooleanField(),
)


# Dispatched without a report, or reported with unknown outcome.
OUTCOME_UNKNOWN: Final = (
    Q(state="dispatched")
    | Q(state="failed", outcome="unknown")
    | Q(state="acknowledged", outcome="unknown")
)
# A rejected attempt may have been undone for a retry, and an earlier one may have happened.
_MAY_HAVE_UNDONE: Final = Q(state="failed", attempt_count__gt=1) | Q(state="failed", undone__gt=0)
# Known to have happened, and a person requested its compensation.
_TO_COMPENSATE: Final = Q(state="acknowledged", resolution="compensate")
_NOT_DISPATCHED: Final = Q(state="planned", permission__in=("granted", "pending", "none", "used"))
NEEDS_SETTLING: Final = OUTCOME_UNKNOWN | _MAY_HAVE_UNDONE | _TO_COMPENSATE | _NOT_DISPATCHED
