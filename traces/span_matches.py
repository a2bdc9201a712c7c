"""Which stored effect a tool call in a span meets: by call id, or by intent and time."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from django.db.models import Q

from ledger.models import Effect
from sessions.models import Session
from traces.span_facts import KEY_PREFIX
from traces.tool_calls import ToolCall

SKEW_US: Final = 5_000_000  # how far the clocks of agent and Gatebook may differ
MAX_NEWEST: Final = 2_000  # effects of the project that are searched for call ids of any session
MAX_IN_SESSION: Final = 1_000  # newest effects of one session that are searched by intent
MAX_SESSIONS: Final = 50  # sessions that one chunk searches by intent
_COLUMNS: Final = (
    "id", "session", "session__parent", "effect_key", "agent", "call_id", "intent_digest",
    "planned_at_us", "dispatched_at_us", "received_us", "changed_us",
)  # fmt: skip


class Candidate(NamedTuple):
    """An effect that an agent recorded, with what a span is compared with."""

    id: UUID
    session: UUID
    parent_session: UUID | None
    effect_key: str
    agent: UUID
    call_id: str
    intent_digest: str
    planned_at_us: int | None
    dispatched_at_us: int | None
    received_us: int
    changed_us: int

    def is_within(self, start_us: int, end_us: int, skew_us: int) -> bool:
        """Return whether the effect was started, or else recorded, during a span."""
        moment = self.dispatched_at_us or self.planned_at_us or self.received_us
        return start_us - skew_us <= moment <= end_us + skew_us


class WantedCall(NamedTuple):
    """A call to match: the session that it belongs to and its intent digest."""

    call: ToolCall
    session: UUID
    digest: str
    has_conversation: bool  # False if its session is only that of its trace


class Candidates(NamedTuple):
    """The effects that calls of one chunk may meet, by call id and by intent."""

    by_call: Mapping[str, Sequence[Candidate]]
    by_intent: Mapping[tuple[UUID, str], Sequence[Candidate]]
    recorded_sessions: frozenset[UUID]  # where an agent recorded effects itself


def load_span_candidates(
    project: UUID, wanted: Sequence[WantedCall], *, find_recorded: bool
) -> Candidates:
    """Load the effects that the calls may meet. Effects that only spans know are left out.

    At most four queries, and two per session. `find_recorded` also finds the sessions where an
    agent recorded effects itself.
    """
    by_call: dict[str, dict[UUID, Candidate]] = defaultdict(dict)
    by_intent: dict[tuple[UUID, str], dict[UUID, Candidate]] = defaultdict(dict)
    sessions = {call.session for call in wanted}
    recorded = Effect.objects.filter(project=project).exclude(effect_key__startswith=KEY_PREFIX)
    call_ids = {call.call.call_id for call in wanted if call.call.call_id}
    if call_ids:
        newest = Effect.objects.filter(project=project).order_by("-opened_position")
        positions = newest.values_list("opened_position", flat=True)
        floor = next(iter(positions[MAX_NEWEST : MAX_NEWEST + 1]), 0)
        named = recorded.filter(~Q(call_id=""), call_id__in=call_ids)
        for rows in (named.filter(session__in=sessions), named.filter(opened_position__gt=floor)):
            for row in rows.values_list(*_COLUMNS)[:MAX_NEWEST]:
                candidate = Candidate(*row)
                by_call[candidate.call_id][candidate.id] = candidate
    digests = {call.digest for call in wanted if not call.call.call_id and call.digest}
    recorded_sessions = set()
    if digests or find_recorded:
        stored = Session.objects.filter(project=project, id__in=sessions, effect_count__gt=0)
        for session in stored.order_by("-opened_position").values_list("id", flat=True)[
            :MAX_SESSIONS
        ]:
            newest = Effect.objects.filter(session=session).order_by("-opened_position")
            rows = recorded.filter(id__in=newest.values("id")[:MAX_IN_SESSION])
            if find_recorded and rows.exists():
                recorded_sessions.add(session)
            for row in rows.filter(intent_digest__in=digests).values_list(*_COLUMNS):
                candidate = Candidate(*row)
                by_intent[session, candidate.intent_digest][candidate.id] = candidate
    return Candidates(
        {name: list(rows.values()) for name, rows in by_call.items()},
        {name: list(rows.values()) for name, rows in by_intent.items()},
        frozenset(recorded_sessions),
    )


def find_match(wanted: WantedCall, candidates: Candidates, agent: UUID) -> Candidate | None:
    """Return the only effect that a call can be; None if there is none or several. Pure."""
    call, span = wanted.call, wanted.call.span
    if call.call_id:
        rows = candidates.by_call.get(call.call_id, ())
        nearest = [row for row in rows if row.session == wanted.session]
        # A subagent has a session of its own, and spans that name only its parent's conversation.
        nearest = nearest or [row for row in rows if row.parent_session == wanted.session]
        if not nearest and not wanted.has_conversation:
            nearest = [
                row
                for row in rows
                if row.agent == agent and row.is_within(span.start_us, span.end_us, SKEW_US)
            ]
        # Some agents use a call id again in one session, for another intent or later.
        for narrower in (
            nearest,
            [row for row in nearest if row.intent_digest == wanted.digest],
            [row for row in nearest if row.is_within(span.start_us, span.end_us, SKEW_US)],
        ):
            if len(narrower) == 1:
                return narrower[0]
        return None
    rows = candidates.by_intent.get((wanted.session, wanted.digest), ())
    for skew_us in (0, SKEW_US):
        close = [row for row in rows if row.is_within(span.start_us, span.end_us, skew_us)]
        if len(close) == 1:
            return close[0]
    return None
