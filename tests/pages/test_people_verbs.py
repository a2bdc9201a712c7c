"""Services for people, agents, tokens and repositories: effects and journal entries."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from accounts import agents, git_refs, people, projects, repositories, tokens
from accounts.models import AgentToken, Membership
from db import raw_sql
from db.errors import ChangeRefused
from journal.entries import keyed_digest
from journal.models import Body, Entry
from tests.pages.people import PASSWORD, Organization

pytestmark = pytest.mark.django_db


@contextmanager
def expect_refusal(sentence: str) -> Iterator[None]:
    """Expect a refusal with `sentence`, and roll back as a view does."""
    with pytest.raises(ChangeRefused, match=sentence), transaction.atomic():
        yield


def last_entry(kind: str) -> Entry:
    return Entry.objects.filter(kind=kind).latest("position")


def test_a_person_appears_in_facts_only_under_a_pseudonym(organization: Organization) -> None:
    actor = people.ensure_pseudonym(organization.members["administrator"].user)
    people.add_project_member(organization.project, "zoe", "viewer", PASSWORD, actor=actor)
    entry = last_entry("admin.member_added")
    pseudonym = people.ensure_pseudonym(User.objects.get(username="zoe"))
    assert entry.actor == actor
    facts = json.loads(entry.facts)
    assert (facts["person"], facts["role"], len(facts)) == (pseudonym, "viewer", 4)
    assert re.fullmatch("[0-9a-f]{32}", facts["account"]), "a keyed digest"
    assert "zoe" not in entry.facts + entry.actor
    assert json.loads(Body.objects.get(entry=entry).text)["username"] == "zoe"


def test_adding_an_existing_person_keeps_their_password(organization: Organization) -> None:
    people.add_project_member(
        organization.project, "neighbour", "viewer", "another-password-entirely-1"
    )
    assert User.objects.get(username="neighbour").check_password(PASSWORD)


def test_adding_a_person_twice_is_refused(organization: Organization) -> None:
    with expect_refusal("already belongs to default"):
        people.add_project_member(organization.project, "viewer", "operator")


def test_a_weak_password_is_refused_and_creates_no_person(organization: Organization) -> None:
    with expect_refusal("too short"):
        people.add_project_member(organization.project, "zoe", "viewer", "short")
    assert not User.objects.filter(username="zoe").exists()


def test_the_last_administrator_can_be_neither_removed_nor_demoted(
    organization: Organization,
) -> None:
    administrator = organization.members["administrator"]
    with expect_refusal("last active administrator"):
        people.remove_project_member(administrator, actor="gatebook")
    with expect_refusal("last active administrator"):
        people.change_project_role(administrator, "viewer", actor="gatebook")
    assert Membership.objects.get(pk=administrator.pk).role == "administrator"


def test_one_of_two_administrators_can_go(organization: Organization) -> None:
    people.change_project_role(organization.members["viewer"], "administrator", actor="gatebook")
    people.remove_project_member(organization.members["administrator"], actor="gatebook")
    assert not Membership.objects.filter(pk=organization.members["administrator"].pk).exists()
    assert json.loads(last_entry("admin.member_removed").facts)["role_before"] == "administrator"


def test_a_person_who_became_the_last_administrator_stays(organization: Organization) -> None:
    as_read_before = Membership.objects.get(pk=organization.members["viewer"].pk)
    people.change_project_role(organization.members["viewer"], "administrator", actor="gatebook")
    people.remove_project_member(organization.members["administrator"], actor="gatebook")
    with expect_refusal("last active administrator"):
        people.change_project_role(as_read_before, "reviewer", actor="gatebook")
    with expect_refusal("last active administrator"):
        people.remove_project_member(Membership.objects.get(pk=as_read_before.pk), actor="gatebook")


def test_a_removed_person_is_given_no_role(organization: Organization) -> None:
    as_read_before = Membership.objects.get(pk=organization.members["viewer"].pk)
    people.remove_project_member(organization.members["viewer"], actor="gatebook")
    with expect_refusal("no longer belongs to the project"):
        people.change_project_role(as_read_before, "reviewer", actor="gatebook")
    with expect_refusal("no longer belongs to the project"):
        people.remove_project_member(as_read_before, actor="gatebook")


def test_an_agent_keeps_its_owner(organization: Organization) -> None:
    assert agents.ensure_agent(organization.project, "deploy-7") == organization.agent
    with expect_refusal("belongs to operator"):
        agents.ensure_agent(organization.project, "deploy-7", organization.members["viewer"].user)


def test_an_owner_must_belong_to_the_project(organization: Organization) -> None:
    with expect_refusal("does not belong to default"):
        agents.ensure_agent(organization.project, "new", organization.neighbour.user)


def test_a_token_is_checked_in_one_query_and_its_use_stored_once_a_minute(
    organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, statements = raw_sql.fetch_rows, []

    def rows(text: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Record statements that bypass Django's cursor and its count."""
        statements.append(text)
        return real(text, parameters)

    monkeypatch.setattr(raw_sql, "fetch_rows", rows)
    token = tokens.issue_token(organization.agent, expires_in=None, actor="gatebook")
    tokens.authenticate_token(f"Bearer {token}")
    statements.clear()
    with CaptureQueriesContext(connection) as queries:
        authenticated = tokens.authenticate_token(f"Bearer {token}")
    assert authenticated is not None
    assert (authenticated.agent, authenticated.agent_name, authenticated.project) == (
        organization.agent.pk,
        "deploy-7",
        organization.project.pk,
    )
    assert (len(statements), len(queries)) == (1, 0)
    with (
        time_machine.travel(timedelta(minutes=2), tick=False),
        CaptureQueriesContext(connection) as queries,
    ):
        tokens.authenticate_token(f"Bearer {token}")
    assert (len(statements), len(queries)) == (2, 1)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: None,
        lambda token: "",
        lambda token: token,
        lambda token: f"Basic {token}",
        lambda token: f"Bearer {token[:-1]}{'A' if token[-1] != 'A' else 'B'}",
        lambda token: f"Bearer {token}x",
        lambda token: f"Bearer {token} ",
        lambda token: f"Bearer {token}\n",
        lambda token: f"Bearer gbk_00000000_{token[13:]}",
        lambda token: f"Bearer gbk_{'٣' * 8}_{token[13:]}",
        lambda token: "Bearer " + "g" * 100_000,
    ],
)
def test_anything_but_the_token_is_refused(organization: Organization, spoil: object) -> None:
    token = tokens.issue_token(organization.agent, expires_in=None, actor="gatebook")
    assert tokens.authenticate_token(spoil(token)) is None  # type: ignore[operator]  # a lambda of the list above


def test_a_token_ends_when_it_expires_or_is_revoked(organization: Organization) -> None:
    token = tokens.issue_token(organization.agent, expires_in=timedelta(hours=1), actor="gatebook")
    authenticated = tokens.authenticate_token(f"Bearer {token}")
    assert authenticated is not None
    with time_machine.travel(timedelta(minutes=61), tick=False):
        assert tokens.authenticate_token(f"Bearer {token}") is None
    for _ in range(2):
        tokens.revoke_agent_token(AgentToken.objects.get(pk=authenticated.token), actor="gatebook")
    assert tokens.authenticate_token(f"Bearer {token}") is None
    assert Entry.objects.filter(kind="admin.token_revoked").count() == 1


def test_the_secret_of_a_token_is_stored_nowhere(organization: Organization) -> None:
    secret = tokens.issue_token(organization.agent, expires_in=None, actor="gatebook").split(
        "_", 2
    )[2]
    assert not Body.objects.filter(text__contains=secret).exists()
    assert not Entry.objects.filter(facts__contains=secret).exists()
    assert all(secret.encode() not in bytes(row.digest) for row in AgentToken.objects.all())


def test_the_command_prints_only_the_token(organization: Organization) -> None:
    out = StringIO()
    call_command(
        "issue_token",
        "--agent",
        "new",
        "--owner",
        "viewer",
        "--expires",
        "2w",
        "--scope",
        "import",
        stdout=out,
    )
    authenticated = tokens.authenticate_token(f"Bearer {out.getvalue().strip()}")
    assert out.getvalue().count("\n") == 1
    assert authenticated is not None
    issued = AgentToken.objects.get(pk=authenticated.token)
    assert (issued.scope, issued.agent.owner) == ("import", organization.members["viewer"].user)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--project", "nowhere"], "no project 'nowhere'"),
        (["--owner", "nobody"], "There is no person 'nobody'"),
        (["--owner", "neighbour"], "does not belong to default"),
        (["--expires", "soon"], "Write hours, days or weeks"),
        (["--expires", "0d"], "Write hours, days or weeks"),
    ],
)
def test_the_command_reports_what_is_wrong(
    organization: Organization, options: list[str], sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        call_command("issue_token", "--agent", "new", *options)
    assert not AgentToken.objects.filter(agent__name="new").exists()


@pytest.mark.parametrize(
    ("ref", "ref_class"),
    [
        ("main", "production"),
        ("refs/heads/main", "production"),
        ("release/2/hotfix", "protected"),
        ("refs/heads/release/1", "protected"),
        ("feature/main", "other"),
        ("refs/remotes/origin/main", "production"),
        ("Main", "production"),
        ("", ""),
    ],
)
def test_a_ref_has_the_class_of_the_first_pattern_that_matches(
    organization: Organization, ref: str, ref_class: str
) -> None:
    assert repositories.classify_moved_refs(
        organization.repository, " ".join(git_refs.parse_moved_refs(ref))
    ) == (ref_class, 1)


def test_production_patterns_are_checked_before_protected(organization: Organization) -> None:
    repositories.change_ref_patterns(
        organization.repository, production="v*", protected="v1\nv*", actor="gatebook"
    )
    assert repositories.classify_moved_refs(organization.repository, "refs/tags/v1") == (
        "production",
        2,
    )


def test_changed_patterns_are_a_new_version_and_equal_ones_are_not(
    organization: Organization,
) -> None:
    change = {"protected": "", "actor": "gatebook"}
    assert repositories.change_ref_patterns(
        organization.repository, production=" refs/heads/trunk \r\n\r\ntrunk\n", **change
    )
    assert (organization.repository.production_refs, organization.repository.patterns_version) == (
        "trunk",
        2,
    )
    assert not repositories.change_ref_patterns(
        organization.repository, production="trunk", **change
    )
    facts = json.loads(last_entry("admin.repository_changed").facts)
    assert facts.pop("patterns_version") == 2
    # The patterns themselves are in the body, which can be erased.
    assert facts == {
        "repository": keyed_digest("repository", organization.repository.name),
        "production": keyed_digest("ref patterns", "trunk"),
        "protected": keyed_digest("ref patterns", ""),
    }


def test_a_pattern_no_ref_could_match_is_refused_with_its_line(organization: Organization) -> None:
    with expect_refusal("Line 2"):
        repositories.change_ref_patterns(
            organization.repository, production="main\na b", protected="", actor="gatebook"
        )


def test_the_default_project_is_made_once() -> None:
    assert projects.ensure_default_project() == projects.ensure_default_project()
