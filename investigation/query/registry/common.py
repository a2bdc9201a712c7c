"""Shared parts of the registry: common fields, computed tests and lookups of related rows."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, Q, QuerySet

from accounts.models import Membership, Project
from approvals.gates import statuses as gate_states
from approvals.models import Vote
from display import handles
from investigation.query.fields.row_tests import CompileContext, RowTest
from investigation.query.fields.types import Field, Flag, Handle, MultiValue, NamedRow
from journal.models import Entry
from ledger.models import Effect
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from monitoring import job_heartbeats
from monitoring.models import StuckEpisode
from sessions.lookup import derive_session_id
from sessions.models import Session


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
        in_project=True,
        nullable=nullable,
    )


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


def constant_test(
    q: Q, holds: Callable[[Any], bool], *, indexed: bool = False
) -> Callable[[CompileContext], RowTest]:
    return lambda _context: RowTest(q, holds, indexed=indexed)


def project_votes(project: Project) -> "QuerySet[Any]":
    return Vote.objects.filter(project=project) if project is not None else Vote.objects.all()


def project_approvals(project: Project) -> "QuerySet[Any]":
    return project_votes(project).filter(answer="approve")


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
