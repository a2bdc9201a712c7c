"""Shared parts of the registry: common fields, computed tests and lookups of related rows."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals import exemptions
from approvals import states as gate_states
from approvals.models import Gate, Vote
from inquiry import handles, shown
from inquiry.indexes import (
    HAS_FAILED,
    IS_OF_A_RARE_KIND,
    NEEDS_LEAVE,
)
from inquiry.models import StuckTransition
from inquiry.query.entity import Flag
from inquiry.query.fields import Context, Field, Test, any_of
from inquiry.query.kinds import Handle, Name, Several
from inquiry.stuck import pulses
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Membership, Project, Session, Task
from sessions.references import identity

FEW: Final = 1_000  # Most ids that are listed in a condition.


def agents(project: Project) -> "QuerySet[Any, Any]":
    return project.agents.order_by("name")


def repositories(project: Project) -> "QuerySet[Any, Any]":
    return project.repositories.order_by("name")


def people(project: Project) -> "QuerySet[Any, Any]":
    """Return members, and former members who voted."""
    member = Membership.objects.filter(project=project, user=OuterRef("pk"))
    voter = Vote.objects.filter(project=project, user=OuterRef("pk"))
    return get_user_model().objects.filter(Exists(member) | Exists(voter)).order_by("username")


def session_id(project: Project, text: str) -> UUID | None:
    row_id = by_handle(project, Session, "s", text)
    if row_id is None:  # By key. Only the id is read: the audit role may read no other column.
        by_key = Session.objects.filter(project=project, id=identity(project.id, text.strip()))
        row_id = by_key.values_list("id", flat=True).first()
    return row_id


def effect_id(project: Project, text: str) -> UUID | None:
    return by_handle(project, Effect, "e", text)


def gate_id(project: Project, text: str) -> UUID | None:
    return by_handle(project, Gate, "g", text)


def task_id(project: Project, text: str) -> UUID | None:
    return by_handle(project, Task, "t", text)


def by_handle(project: Project, model: Any, letter: str, text: str) -> UUID | None:
    rows = model.objects.filter(project=project)
    handle, row_uuid = handles.handle(text), handles.as_uuid(text)
    if handle is not None and handle[0] == letter:
        rows = rows.filter(opened_position=handle[1])
    elif row_uuid is not None:
        rows = rows.filter(id=row_uuid)
    else:
        return None
    ids: list[UUID] = list(rows.values_list("id", flat=True)[:1])
    return ids[0] if ids else None


def agent(index: str = "", path: str = "agent_id", shows: str = "agent__name") -> Name:
    return Name(
        "agent",
        "Agent",
        path=path,
        shows=shows,
        known=agents,
        called="an agent",
        index=index,
        facet=True,
    )


def repository(index: str = "", **more: Any) -> Name:
    return Name(
        "repository",
        "Repository",
        path="repository_id",
        shows="repository__name",
        known=repositories,
        called="a repository",
        aliases=("repo",),
        index=index,
        facet=True,
        **more,
    )


def person(name: str, label: str, path: str, help: str = "", aliases: tuple[str, ...] = ()) -> Name:  # noqa: A002
    shows = f"{path.removesuffix('_id')}__username"
    return Name(
        name,
        label,
        help,
        path=path,
        shows=shows,
        known=people,
        column="username",
        called="a person",
        aliases=aliases,
    )


def session(index: str, *, nullable: bool = False, path: str = "session_id") -> Handle:
    return Handle(
        "session",
        "Session",
        "s_41, id or key",
        path=path,
        find=session_id,
        called="a session",
        index=index,
        walled=True,
        nullable=nullable,
    )


def effect_state(state: str, context: Context) -> Test:
    arms, now_us = tuple(shown.arms(state, context.now_us)), context.now_us
    label = shown.STATES[state]
    return Test(shown.any_of(list(arms)), lambda row: shown.shown_state(row, now_us) == label, arms)


def session_status(status: str, _context: Context) -> Test:
    if status == "no_end_told":
        return Test(shown.no_end_told(), lambda row: shown.shown_status(row) == shown.NO_END)
    q = Q(status=status)
    if status == "running":
        q &= ~Q(mode="reported")
    return Test(q, lambda row: shown.shown_status(row) == status)


def judged(word: str, _context: Context) -> Test:
    if word == "not_held":
        return Test(
            Q(NEEDS_LEAVE, enforced=False),
            lambda row: row.judged in ("ask", "deny") and not row.enforced,
        )
    q = Q(judged=word) if word == "allow" else Q(NEEDS_LEAVE, judged=word)
    return Test(q, lambda row: row.judged == word)


RULINGS: Final = {
    "approved": gate_states.GIVEN,
    "denied": ("denied", "denied_final"),
    "returned": ("returned",),
    "none": ("pending", "expired", "cancelled"),
}


def ruling(word: str, _context: Context) -> Test:
    statuses = RULINGS[word]
    return Test(Q(status__in=statuses), lambda row: row.status in statuses)


def stuck(rule: "str | None", column: str = "subject") -> Callable[[Context], Test]:
    def test(context: Context) -> Test:
        context.goes_by(pulses.progress_of_checks(context.now_us))
        raised = StuckTransition.objects.filter(project=context.project, raised_us__isnull=False)
        if context.upto is None:
            raised = raised.filter(cleared_us__isnull=True)
        else:
            cleared_since = Q(cleared_us__isnull=True) | Q(cleared_position__gt=context.upto)
            raised = raised.filter(cleared_since, raised_position__lte=context.upto)
        raised = raised.filter(rule=rule) if rule else raised.filter(session__isnull=False)
        return Test(
            Q(pk__in=raised.order_by().values(column)), indexed=True, lasts=context.upto is not None
        )

    return test


def named_by_entries(column: str, **conditions: Any) -> Callable[[Context], Test]:
    def test(context: Context) -> Test:
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
        return Test(Q(pk__in=named_entries.order_by().values(column)), lasts=True)

    return test


def sessions_of(q: Q, holds: Callable[[Any], bool]) -> Callable[[Context], Test]:
    """Return the test for sessions with an effect that meets `q`, for which an index exists.

    `holds` is the same test for one effect.
    """

    def test(context: Context) -> Test:
        past_test = _past_sessions_test(Test(q, holds), context)
        if past_test is not None:
            return past_test
        effects = Effect.objects.filter(q, project=context.project)
        return Test(Q(pk__in=effects.order_by().values("session")))

    return test


def _past_sessions_test(of_effects: Test, context: Context) -> Test | None:
    """Return the test as of the moment of the context, or None if it is unknown."""
    condition = context.as_of("effect", of_effects) if context.as_of is not None else None
    if condition is None:
        return None
    effects = Effect.objects.filter(
        condition, project=context.project, opened_position__lte=context.upto
    )
    return Test(Q(pk__in=effects.order_by().values("session")), lasts=True)


def simple(
    q: Q, holds: Callable[[Any], bool], *, indexed: bool = False
) -> Callable[[Context], Test]:
    return lambda _context: Test(q, holds, indexed=indexed)


def unknown_effects(context: Context) -> Test:
    test = effect_state(shown.UNKNOWN, context)
    return Test(test.q, test.holds, test.arms, indexed=True)


def sessions_with_unknown(context: Context) -> Test:
    past_test = _past_sessions_test(effect_state(shown.UNKNOWN, context), context)
    if past_test is not None:
        return past_test
    tests = []
    for arm in shown.arms(shown.UNKNOWN, context.now_us):
        effects = Effect.objects.filter(arm, project=context.project)
        tests.append(Test(Q(pk__in=effects.order_by().values("session"))))
    return any_of(tests)


def exemption_is(live: bool) -> Callable[[Context], Test]:
    def test(context: Context) -> Test:
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

        return Test(q if live else ~q, lambda row: is_in_force(row) is live)

    return test


def votes(project: Project) -> "QuerySet[Any]":
    return Vote.objects.filter(project=project) if project is not None else Vote.objects.all()


def approvals(project: Project) -> "QuerySet[Any]":
    return votes(project).filter(answer="approve")


def gates(project: Project) -> "QuerySet[Any]":
    return Gate.objects.filter(project=project) if project is not None else Gate.objects.all()


GIVEN: Final = Test(Q(status__in=gate_states.GIVEN), lambda row: row.status in gate_states.GIVEN)
FAILED: Final = Test(Q(HAS_FAILED, state="failed"), lambda row: row.state == "failed")


def given_gates(project: Project) -> "QuerySet[Any]":
    return gates(project).filter(status__in=gate_states.GIVEN)


def failed(project: Project) -> "QuerySet[Any]":
    rows = Effect.objects.filter(HAS_FAILED, state="failed")
    return rows.filter(project=project) if project is not None else rows


def by_name(*fields: Field) -> dict[str, Field]:
    return {known_field.name: known_field for known_field in fields}


def flags(*words: Flag) -> dict[str, Flag]:
    return {flag.name: flag for flag in words}


def reviewer(link: str, reach: str, **more: Any) -> Several:
    return Several(
        "reviewer",
        "Reviewer",
        "a person who voted",
        rows=votes,
        told_at="position",
        lasts=True,
        link=link,
        reach=reach,
        inner=person("reviewer", "Reviewer", "user_id"),
        facet=True,
        **more,
    )


def approver(link: str, reach: str) -> Several:
    return Several(
        "approver",
        "Approver",
        "a person who approved",
        rows=approvals,
        told_at="position",
        lasts=True,
        link=link,
        reach=reach,
        some=True,
        left=(("answer", "approve"),),
        inner=person("approver", "Approver", "user_id"),
    )


def self_approved(context: Context) -> Test:
    """Return the test for gates approved by their requester or the owner of the session or agent.

    The votes are read once.
    """
    self_votes = votes(context.project).filter(own=True).order_by()
    if context.upto is not None:
        self_votes = self_votes.filter(position__lte=context.upto)
    name_key = ("self_approved", "", False)
    if name_key not in context.names:
        context.names[name_key] = list(
            self_votes.values_list("gate", flat=True).distinct()[: FEW + 1]
        )
    ids = context.names[name_key]
    if len(ids) > FEW:
        return Test(Q(pk__in=self_votes.values("gate")), indexed=True)
    return Test(Q(pk__in=ids), lambda row: row.pk in ids, indexed=True)
