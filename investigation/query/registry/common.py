"""Shared parts of the registry: common fields, computed tests and lookups of related rows."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, Q, QuerySet

from accounts.models import Membership, Project
from approvals import exemptions
from approvals.gates import statuses as gate_states
from approvals.models import Gate, Vote
from display import display_state, handles
from investigation.query.entity_types import Flag
from investigation.query.fields.row_tests import CompileContext, RowTest, union_tests
from investigation.query.fields.types import Field, Handle, MultiValue, NamedRow
from journal.models import Entry
from ledger import violations
from ledger.models import Effect
from ledger.partial_indexes import HAS_FAILED, IS_OF_A_RARE_KIND, NEEDS_PERMISSION
from monitoring import job_heartbeats, stuck_counts
from monitoring.models import StuckEpisode
from sessions.lookup import derive_session_id
from sessions.models import Session, Task

MAX_LISTED_IDS: Final = 1_000  # Most ids that are listed in a condition.


def project_agents(project: Project) -> "QuerySet[Any, Any]":
    return project.agents.order_by("name")


def project_repositories(project: Project) -> "QuerySet[Any, Any]":
    return project.repositories.order_by("name")


def project_people(project: Project) -> "QuerySet[Any, Any]":
    """Return members, and former members who voted."""
    member = Membership.objects.filter(project=project, user=OuterRef("pk"))
    voter = Vote.objects.filter(project=project, user=OuterRef("pk"))
    return get_user_model().objects.filter(Exists(member) | Exists(voter)).order_by("username")


def find_session_id(project: Project, text: str) -> UUID | None:
    row_id = find_by_handle(project, Session, "s", text)
    if row_id is None:  # By key. Only the id is read: the audit role may read no other column.
        by_key = Session.objects.filter(
            project=project, id=derive_session_id(project.id, text.strip())
        )
        row_id = by_key.values_list("id", flat=True).first()
    return row_id


def find_effect_id(project: Project, text: str) -> UUID | None:
    return find_by_handle(project, Effect, "e", text)


def find_gate_id(project: Project, text: str) -> UUID | None:
    return find_by_handle(project, Gate, "g", text)


def find_task_id(project: Project, text: str) -> UUID | None:
    return find_by_handle(project, Task, "t", text)


def find_by_handle(project: Project, model: Any, letter: str, text: str) -> UUID | None:
    rows = model.objects.filter(project=project)
    handle, row_uuid = handles.parse_handle(text), handles.parse_uuid(text)
    if handle is not None and handle[0] == letter:
        rows = rows.filter(opened_position=handle[1])
    elif row_uuid is not None:
        rows = rows.filter(id=row_uuid)
    else:
        return None
    ids: list[UUID] = list(rows.values_list("id", flat=True)[:1])
    return ids[0] if ids else None


def agent_field(index: str = "", path: str = "agent_id", shows: str = "agent__name") -> NamedRow:
    return NamedRow(
        "agent",
        "Agent",
        path=path,
        shows=shows,
        candidates=project_agents,
        called="an agent",
        index=index,
        facet=True,
    )


def repository_field(index: str = "", **more: Any) -> NamedRow:
    return NamedRow(
        "repository",
        "Repository",
        path="repository_id",
        shows="repository__name",
        candidates=project_repositories,
        called="a repository",
        aliases=("repo",),
        index=index,
        facet=True,
        **more,
    )


def person_field(
    name: str,
    label: str,
    path: str,
    help: str = "",  # noqa: A002
    aliases: tuple[str, ...] = (),
) -> NamedRow:
    shows = f"{path.removesuffix('_id')}__username"
    return NamedRow(
        name,
        label,
        help,
        path=path,
        shows=shows,
        candidates=project_people,
        column="username",
        called="a person",
        aliases=aliases,
    )


def session_field(index: str, *, nullable: bool = False, path: str = "session_id") -> Handle:
    return Handle(
        "session",
        "Session",
        "s_41, id or key",
        path=path,
        find=find_session_id,
        called="a session",
        index=index,
        walled=True,
        nullable=nullable,
    )


def effect_state_test(state: str, context: CompileContext) -> RowTest:
    arms, now_us = (
        tuple(display_state.shown_state_conditions(state, context.now_us)),
        context.now_us,
    )
    label = display_state.STATES[state]
    return RowTest(
        display_state.union_of_conditions(list(arms)),
        lambda row: display_state.derive_shown_state(row, now_us) == label,
        arms,
    )


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


def policy_outcome_test(word: str, _context: CompileContext) -> RowTest:
    if word == "not_enforced":
        return RowTest(
            Q(NEEDS_PERMISSION, policy_enforced=False),
            lambda row: row.policy_outcome in ("ask", "deny") and not row.policy_enforced,
        )
    q = Q(policy_outcome=word) if word == "allow" else Q(NEEDS_PERMISSION, policy_outcome=word)
    return RowTest(q, lambda row: row.policy_outcome == word)


RULINGS: Final = {
    "approved": gate_states.APPROVED_STATUSES,
    "denied": ("denied", "denied_session"),
    "changes_requested": ("changes_requested",),
    "none": ("pending", "expired", "cancelled"),
}


def ruling_test(word: str, _context: CompileContext) -> RowTest:
    statuses = RULINGS[word]
    return RowTest(Q(status__in=statuses), lambda row: row.status in statuses)


def stuck_test(rule: "str | None", column: str = "subject") -> Callable[[CompileContext], RowTest]:
    def test(context: CompileContext) -> RowTest:
        context.goes_by(job_heartbeats.load_stuck_check_progress(context.now_us))
        raised = StuckEpisode.objects.filter(project=context.project, raised_us__isnull=False)
        if context.upto is None:
            raised = raised.filter(cleared_us__isnull=True)
        else:
            cleared_since = Q(cleared_us__isnull=True) | Q(cleared_position__gt=context.upto)
            raised = raised.filter(cleared_since, raised_position__lte=context.upto)
        raised = raised.filter(rule=rule) if rule else raised.filter(session__isnull=False)
        return RowTest(
            Q(pk__in=raised.order_by().values(column)), indexed=True, lasts=context.upto is not None
        )

    return test


def entry_test(column: str, **conditions: Any) -> Callable[[CompileContext], RowTest]:
    def test(context: CompileContext) -> RowTest:
        named_entries = Entry.objects.filter(
            project=context.project.id, **{f"{column}__isnull": False}, **conditions
        )
        named_entries = (
            named_entries.filter(IS_OF_A_RARE_KIND) if "kind" in conditions else named_entries
        )
        if context.upto is not None:
            named_entries = named_entries.filter(position__lte=context.upto)
            named_entries = (
                named_entries
                if "kind" in conditions
                else named_entries.filter(erasure__erased_at_us__lte=context.now_us)
            )
        return RowTest(Q(pk__in=named_entries.order_by().values(column)), lasts=True)

    return test


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


def _past_sessions_test(of_effects: RowTest, context: CompileContext) -> RowTest | None:
    """Return the test as of the moment of the context, or None if it is unknown."""
    condition = context.as_of("effect", of_effects) if context.as_of is not None else None
    if condition is None:
        return None
    effects = Effect.objects.filter(
        condition, project=context.project, opened_position__lte=context.upto
    )
    return RowTest(Q(pk__in=effects.order_by().values("session")), lasts=True)


def constant_test(
    q: Q, holds: Callable[[Any], bool], *, indexed: bool = False
) -> Callable[[CompileContext], RowTest]:
    return lambda _context: RowTest(q, holds, indexed=indexed)


def unknown_effects_test(context: CompileContext) -> RowTest:
    test = effect_state_test(display_state.UNKNOWN, context)
    return RowTest(test.q, test.holds, test.arms, indexed=True)


def unacknowledged_test(context: CompileContext) -> RowTest:
    """Return the test for effects with a violation that nobody has acknowledged since.

    Entries never change, so as of a past moment only those up to it count.
    """
    condition = violations.is_unacknowledged(
        violations.MAX_POSITION if context.upto is None else context.upto
    )
    return RowTest(condition, indexed=True, lasts=context.upto is not None)


def stalled_test(context: CompileContext) -> RowTest:
    """Return the test for sessions that need somebody (monitoring/stuck_counts.py)."""
    context.goes_by(job_heartbeats.load_stuck_check_progress(context.now_us))
    stalled = stuck_counts.query_stalled_episodes(context.project.id, context.now_us)
    return RowTest(Q(pk__in=stalled.order_by().values("session")), indexed=True)


def sessions_with_unknown_test(context: CompileContext) -> RowTest:
    past_test = _past_sessions_test(effect_state_test(display_state.UNKNOWN, context), context)
    if past_test is not None:
        return past_test
    tests = []
    for arm in display_state.shown_state_conditions(display_state.UNKNOWN, context.now_us):
        effects = Effect.objects.filter(arm, project=context.project)
        tests.append(RowTest(Q(pk__in=effects.order_by().values("session"))))
    return union_tests(tests)


def exemption_state_test(live: bool) -> Callable[[CompileContext], RowTest]:
    def test(context: CompileContext) -> RowTest:
        now = context.now_us
        q = (
            Q(revoked_at_us__isnull=True, ends_at_us__gt=now, in_force_at_us__isnull=False)
            & exemptions.IS_GRANTED
        )

        def is_in_force(row: Any) -> bool:
            is_active: bool = (
                row.in_force_at_us is not None
                and row.revoked_at_us is None
                and row.ends_at_us > now
            )
            return is_active and getattr(row, "present", row.minimum) >= row.minimum

        return RowTest(q if live else ~q, lambda row: is_in_force(row) is live)

    return test


def project_votes(project: Project) -> "QuerySet[Any]":
    return Vote.objects.filter(project=project) if project is not None else Vote.objects.all()


def project_approvals(project: Project) -> "QuerySet[Any]":
    return project_votes(project).filter(answer="approve")


def project_gates(project: Project) -> "QuerySet[Any]":
    return Gate.objects.filter(project=project) if project is not None else Gate.objects.all()


APPROVED_GATE: Final = RowTest(
    Q(status__in=gate_states.APPROVED_STATUSES),
    lambda row: row.status in gate_states.APPROVED_STATUSES,
)
FAILED_EFFECT: Final = RowTest(Q(HAS_FAILED, state="failed"), lambda row: row.state == "failed")


def project_approved_gates(project: Project) -> "QuerySet[Any]":
    return project_gates(project).filter(status__in=gate_states.APPROVED_STATUSES)


def failed_effects(project: Project) -> "QuerySet[Any]":
    rows = Effect.objects.filter(HAS_FAILED, state="failed")
    return rows.filter(project=project) if project is not None else rows


def fields_by_name(*fields: Field) -> dict[str, Field]:
    return {known_field.name: known_field for known_field in fields}


def flags_by_name(*words: Flag) -> dict[str, Flag]:
    return {flag.name: flag for flag in words}


def reviewer_field(link: str, reach: str, **more: Any) -> MultiValue:
    return MultiValue(
        "reviewer",
        "Reviewer",
        "a person who voted",
        rows=project_votes,
        reported_at="position",
        lasts=True,
        link=link,
        reach=reach,
        inner=person_field("reviewer", "Reviewer", "user_id"),
        facet=True,
        **more,
    )


def approver_field(link: str, reach: str) -> MultiValue:
    return MultiValue(
        "approver",
        "Approver",
        "a person who approved",
        rows=project_approvals,
        reported_at="position",
        lasts=True,
        link=link,
        reach=reach,
        some=True,
        left=(("answer", "approve"),),
        inner=person_field("approver", "Approver", "user_id"),
    )


def self_approved_test(context: CompileContext) -> RowTest:
    """Return the test for gates approved by their requester or the owner of the session or agent.

    The votes are read once.
    """
    self_votes = project_votes(context.project).filter(own=True).order_by()
    if context.upto is not None:
        self_votes = self_votes.filter(position__lte=context.upto)
    name_key = ("self_approved", "", False)
    if name_key not in context.names:
        context.names[name_key] = list(
            self_votes.values_list("gate", flat=True).distinct()[: MAX_LISTED_IDS + 1]
        )
    ids = context.names[name_key]
    if len(ids) > MAX_LISTED_IDS:
        return RowTest(Q(pk__in=self_votes.values("gate")), indexed=True)
    return RowTest(Q(pk__in=ids), lambda row: row.pk in ids, indexed=True)
