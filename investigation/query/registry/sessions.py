"""Fields of sessions."""

from collections.abc import Callable
from typing import Any, Final

from django.db.models import Q, QuerySet

from accounts.models import Project
from display import display_state
from investigation.query.fields.row_tests import CompileContext, RowTest, union_tests
from investigation.query.fields.types import (
    Choice,
    ComputedChoice,
    Duration,
    Entity,
    Flag,
    Handle,
    MultiValue,
    Number,
    Text,
    Time,
    label_choices,
)
from investigation.query.registry.common import (
    agent_field,
    constant_test,
    entry_test,
    fields_by_name,
    find_session_id,
    flags_by_name,
    person_field,
    repository_field,
    stuck_test,
)
from investigation.query.registry.duplicates import looped_test, repeats_field
from investigation.query.registry.effects import effect_state_test
from ledger.models import Effect
from ledger.partial_indexes import HAS_FAILED
from monitoring import job_heartbeats, stuck_counts
from sessions.models import ENDED, MODES, STATUSES, Session

FAILED_EFFECT: Final = RowTest(Q(HAS_FAILED, state="failed"), lambda row: row.state == "failed")


def failed_effects(project: Project) -> "QuerySet[Any]":
    rows = Effect.objects.filter(HAS_FAILED, state="failed")
    return rows.filter(project=project) if project is not None else rows


def session_status_test(status: str, _context: CompileContext) -> RowTest:
    if status == "no_end_told":
        return RowTest(
            display_state.end_not_reported_condition(),
            lambda row: display_state.derive_shown_status(row) == display_state.END_NOT_REPORTED,
        )
    q = Q(status=status)
    if status == "running":
        q &= ~Q(mode="reported")
    return RowTest(q, lambda row: display_state.derive_shown_status(row) == status)


def sessions_with_effect_test(
    q: Q, holds: Callable[[Any], bool]
) -> Callable[[CompileContext], RowTest]:
    """Return the test for sessions with an effect that meets `q`, for which an index exists.

    `holds` is the same test for one effect.
    """

    def test(context: CompileContext) -> RowTest:
        past_test = _past_sessions_test(RowTest(q, holds), context)
        if past_test is not None:
            return past_test
        effects = Effect.objects.filter(q, project=context.project)
        return RowTest(Q(pk__in=effects.order_by().values("session")))

    return test


def sessions_with_unknown_test(context: CompileContext) -> RowTest:
    past_test = _past_sessions_test(effect_state_test(display_state.UNKNOWN, context), context)
    if past_test is not None:
        return past_test
    tests = []
    for arm in display_state.shown_state_conditions(display_state.UNKNOWN, context.now_us):
        effects = Effect.objects.filter(arm, project=context.project)
        tests.append(RowTest(Q(pk__in=effects.order_by().values("session"))))
    return union_tests(tests)


def _past_sessions_test(of_effects: RowTest, context: CompileContext) -> RowTest | None:
    """Return the test as of the moment of the context, or None if it is unknown."""
    condition = context.as_of("effect", of_effects) if context.as_of is not None else None
    if condition is None:
        return None
    effects = Effect.objects.filter(
        condition, project=context.project, opened_position__lte=context.upto
    )
    return RowTest(Q(pk__in=effects.order_by().values("session")), lasts=True)


def stalled_test(context: CompileContext) -> RowTest:
    """Return the test for sessions that need somebody (monitoring/stuck_counts.py)."""
    context.goes_by(job_heartbeats.load_stuck_check_progress(context.now_us))
    stalled = stuck_counts.query_stalled_episodes(context.project.id, context.now_us)
    return RowTest(Q(pk__in=stalled.order_by().values("session")), indexed=True)


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
            in_project=True,
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
