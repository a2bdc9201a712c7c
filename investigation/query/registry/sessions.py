"""Fields of sessions."""

from typing import Final

from django.db.models import Q

from display import display_state
from investigation.query.entity_types import Entity, Flag, label_choices
from investigation.query.fields.types import (
    Choice,
    ComputedChoice,
    Duration,
    Handle,
    MultiValue,
    Number,
    Text,
    Time,
)
from investigation.query.registry.common import (
    FAILED_EFFECT,
    agent_field,
    constant_test,
    entry_test,
    failed_effects,
    fields_by_name,
    find_session_id,
    flags_by_name,
    person_field,
    repository_field,
    session_status_test,
    sessions_with_effect_test,
    sessions_with_unknown_test,
    stalled_test,
    stuck_test,
)
from investigation.query.registry.duplicates import looped_test, repeats_field
from sessions.models import ENDED, MODES, STATUSES, Session

SESSION: Final = Entity(
    "session",
    "sessions",
    "a long-lived execution",
    Session,
    "at",
    "status",
    fields_by_name(
        ComputedChoice(
            "status",
            "Status",
            "as shown on every page",
            path="status",
            choices=(*label_choices(STATUSES), ("no_end_told", display_state.END_NOT_REPORTED)),
            each=session_status_test,
            aliases=("state",),
            facet=True,
        ),
        Choice("mode", "Mode", path="mode", choices=label_choices(MODES), facet=True),
        agent_field(),
        repository_field(),
        Text("branch", "Branch", path="branch"),
        Text("key", "Key", path="key"),
        Text(
            "title", "Title", "set by the agent; the full title, or a prefix with *", path="title"
        ),
        Text("waiting_on", "Waiting on", "as reported by the agent", path="waiting_on"),
        person_field("owner", "Owner", "owner_id"),
        person_field("on_behalf_of", "On behalf of", "on_behalf_of_id", "as reported by the agent"),
        Handle(
            "id",
            "Session",
            "s_41, id or key",
            path="id",
            find=find_session_id,
            called="a session",
            index="primary key",
            walled=True,
            aliases=("session",),
        ),
        Handle(
            "parent",
            "Parent session",
            "s_41, id or key",
            path="parent_id",
            find=find_session_id,
            called="a session",
            nullable=True,
        ),
        Handle(
            "branched_from",
            "Branched from",
            "s_41, id or key",
            path="branched_from_id",
            find=find_session_id,
            called="a session",
            nullable=True,
        ),
        MultiValue(
            "failing_tool",
            "Tool that failed",
            "the tool of a failed effect",
            rows=failed_effects,
            link="session_id",
            reach="effects",
            entity="effect",
            only=FAILED_EFFECT,
            inner=Text("failing_tool", "Tool", path="tool"),
        ),
        Number(
            "resumes",
            "Resumes",
            "how often another worker took over",
            path="resumes",
            nullable=False,
        ),
        repeats_field(),
        Number("effects", "Effects", path="effect_count", nullable=False),
        Time("at", "Opened", "server's clock", path="created_at_us", nullable=False),
        Time(
            "seen_at",
            "Last seen",
            "server's clock; does not support `asof:`",
            path="seen_at_us",
            nullable=False,
            unkept="The journal does not record heartbeats, so past values are unknown.",
        ),
        Time("started_at", "Started", "producer's clock", path="started_at_us"),
        Time("ended_at", "Ended", "producer's clock", path="ended_at_us"),
        Duration(
            "took",
            "Took",
            "from start to end, by the producer's clock",
            path="ended_at_us",
            minus="started_at_us",
        ),
    ),
    flags_by_name(
        Flag("stuck", "reported as stuck", stuck_test(None, "session")),
        Flag(
            "stalled",
            "reported as stuck, needs somebody, and is not snoozed; leaves out what only waits"
            " for an approval or for an unknown outcome",
            stalled_test,
        ),
        Flag("looped", "was ever reported as looping", looped_test),
        Flag(
            "waiting",
            "the agent reports that it is waiting",
            constant_test(Q(status="waiting"), lambda row: row.status == "waiting"),
        ),
        Flag(
            "unknown",
            "the outcome of one of its effects is unknown",
            sessions_with_unknown_test,
        ),
        Flag(
            "fenced",
            "a worker without the lease, or another agent, reported",
            entry_test("session", kind="integrity.fenced", lane="system"),
        ),
        Flag(
            "erased",
            "one of its bodies was erased",
            entry_test("session", erasure__isnull=False),
        ),
        Flag(
            "violating",
            "an integrity violation names one of its effects",
            sessions_with_effect_test(Q(violates=True), lambda row: row.violates),
        ),
        Flag(
            "ended",
            "completed, failed or cancelled",
            constant_test(Q(status__in=ENDED), lambda row: row.status in ENDED),
        ),
    ),
    {
        "effect": lambda rows: (rows, "session_id", "id"),
        "gate": lambda rows: (rows, "session_id", "id"),
        "exemption": lambda rows: (rows.filter(session__isnull=False), "session_id", "id"),
        "event": lambda rows: (rows.filter(session__isnull=False), "session", "id"),
    },
    "session",
)
