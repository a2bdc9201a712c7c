"""Queries compiled to SQL once: each call has its own values and returns the rows of a plain query."""

from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import Count, QuerySet, Subquery
from django.test.utils import CaptureQueriesContext

from accounts.models import Membership, Project
from db.compiled_query import CompiledQuerySet
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db


def _heads(project: UUID, least: int) -> "QuerySet[Any]":
    memberships = Membership.objects.filter(project=project).order_by()
    many = Subquery(memberships.values("project").annotate(n=Count("id")).values("n"))
    return Project.objects.annotate(n=many).filter(pk=project, n__gte=least).values_list("id", "n")


def test_every_call_has_its_own_values_in_one_query(organization: Organization) -> None:
    def of_members(user: int) -> "QuerySet[Membership]":
        return Membership.objects.filter(user_id=user).select_related("project", "user__person")

    people, memberships = (
        CompiledQuerySet(_heads, project=UUID, least=int),
        CompiledQuerySet(of_members, user=int),
    )
    with CaptureQueriesContext(connection) as queries:
        results = [
            people.rows(project=row.id, least=least)
            for row in (organization.project, organization.other)
            for least in (0, 2)
        ]
    assert results == [
        [(organization.project.id, 4)],
        [(organization.project.id, 4)],
        [(organization.other.id, 1)],
        [],
    ]
    assert len(queries) == 4
    for row in (organization.members["viewer"], organization.neighbour):
        (membership,) = memberships.rows(user=row.user_id)
        with CaptureQueriesContext(connection) as queries:
            assert (membership, membership.project, membership.user) == (row, row.project, row.user)
            assert membership.created_at == row.created_at
        assert not queries.captured_queries, "what was selected along is there"
    with pytest.raises(ValueError, match="'other'"):
        CompiledQuerySet(lambda user, other: of_members(user), user=int, other=int).rows(
            user=1, other=2
        )


def test_sequences_of_any_length_and_texts_are_values_too(organization: Organization) -> None:
    def members(project: UUID, least: int, roles: list[str]) -> "QuerySet[Any]":
        memberships = Membership.objects.filter(
            project=project, user_id__gte=least, role__in=roles
        ).order_by("-user_id")
        return memberships.values_list("id", "role", "created_at", "user__is_active")

    compiled = CompiledQuerySet(members, project=UUID, least=int, roles=[str])
    roles = sorted(set(Membership.objects.values_list("role", flat=True)))
    assert len(roles) == 4
    counts = []
    for some in (roles[:1], roles[:2], roles[:3], roles, [*roles, *roles[1:]]):
        for project in (organization.project.id, organization.other.id):
            rows = compiled.rows(project=project, least=0, roles=some)
            assert rows == list(members(project=project, least=0, roles=some))
            assert compiled.rows(project=project, least=2**40, roles=some) == []
            counts.append(len(rows))
    assert max(counts) == 4
    assert len(compiled._made) == 4  # three are padded to four, seven to eight

    def named(ids: list[UUID], username: str) -> "QuerySet[Membership]":
        return Membership.objects.filter(id__in=ids, user__username=username)

    viewer = organization.members["viewer"]
    by_name = CompiledQuerySet(named, ids=[UUID], username=str)
    ids = [member.id for member in organization.members.values()]
    assert by_name.rows(ids=ids, username=viewer.user.get_username()) == [viewer]
    assert by_name.rows(ids=[organization.neighbour.id], username=viewer.user.get_username()) == []
