"""Fields of sessions."""

from typing import Final

from django.db.models import Q

from inquiry import shown
from inquiry.query.entity import Entity, Flag, pairs
from inquiry.query.fields import Choice, Own, Text
from inquiry.query.kinds import Handle, Length, Number, Several, Time
from inquiry.query.of_repeats import looped, repeats
from inquiry.query.parts import (
    FAILED,
    agent,
    by_name,
    failed,
    flags,
    named_by_entries,
    person,
    repository,
    session_id,
    session_status,
    sessions_of,
    sessions_with_unknown,
    simple,
    stuck,
)
from sessions.models import ENDED, MODES, STATUSES, Session

SESSION: Final = Entity(
    "session",
    "sessions",
    "a long-lived execution",
    Session,
    "at",
    "status",
    by_name(
        Own(
            "status",
            "Status",
            "as shown on every page",
            path="status",
            choices=(*pairs(STATUSES), ("no_end_told", shown.NO_END)),
            each=session_status,
            aliases=("state",),
            facet=True,
        ),
        Choice("mode", "Mode", path="mode", choices=pairs(MODES), facet=True),
        agent(),
        repository(),
        Text("branch", "Branch", path="branch"),
        Text("key", "Key", path="key"),
        Text(
            "title", "Title", "set by the agent; the full title, or a prefix with *", path="title"
        ),
        Text("waiting_on", "Waiting on", "as reported by the agent", path="waiting_on"),
        person("owner", "Owner", "owner_id"),
        person("on_behalf_of", "On behalf of", "on_behalf_of_id", "as reported by the agent"),
        Handle(
            "id",
            "Session",
            "s_41, id or key",
            path="id",
            find=session_id,
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
            find=session_id,
            called="a session",
            nullable=True,
        ),
        Handle(
            "branched_from",
            "Branched from",
            "s_41, id or key",
            path="branched_from_id",
            find=session_id,
            called="a session",
            nullable=True,
        ),
        Several(
            "failing_tool",
            "Tool that failed",
            "the tool of a failed effect",
            rows=failed,
            link="session_id",
            reach="effects",
            entity="effect",
            only=FAILED,
            inner=Text("failing_tool", "Tool", path="tool"),
        ),
        Number(
            "resumes",
            "Resumes",
            "how often another worker took over",
            path="resumes",
            nullable=False,
        ),
        repeats(),
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
        Length(
            "took",
            "Took",
            "from start to end, by the producer's clock",
            path="ended_at_us",
            minus="started_at_us",
        ),
    ),
    flags(
        Flag("stuck", "reported as stuck", stuck(None, "session")),
        Flag("looped", "was ever reported as looping", looped),
        Flag(
            "waiting",
            "the agent reports that it is waiting",
            simple(Q(status="waiting"), lambda row: row.status == "waiting"),
        ),
        Flag(
            "unknown",
            "the outcome of one of its effects is unknown",
            sessions_with_unknown,
        ),
        Flag(
            "fenced",
            "a worker without the lease, or another agent, reported",
            named_by_entries("session", kind="integrity.fenced", lane="system"),
        ),
        Flag(
            "erased",
            "one of its bodies was erased",
            named_by_entries("session", erasure__isnull=False),
        ),
        Flag(
            "violating",
            "an integrity violation names one of its effects",
            sessions_of(Q(violates=True), lambda row: row.violates),
        ),
        Flag(
            "ended",
            "completed, failed or cancelled",
            simple(Q(status__in=ENDED), lambda row: row.status in ENDED),
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
