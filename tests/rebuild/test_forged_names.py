"""Names, pseudonyms and passwords of people that an insider changes for a while are named."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from accounts import audit_log, invitations, people
from accounts.models import Agent, Invitation, Membership, Person
from db.clock import now_us
from erasure import person_erasure
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.rebuild.test_forged_rows import forge
from tests.rebuild.test_rebuilt_stories import list_differences
from tests.rebuild.test_short_entries import record_short

pytestmark = pytest.mark.django_db
ASKS_CAROL = RULES.replace(
    "require: {minimum: 1, rationale", "require: {minimum: 1, people: [carol], rationale"
)
ALTERED_NAME = ("altered", "auth_user", "username")
ALTERED_PASSWORD = ("altered", "auth_user", "password")


def list_named() -> set[tuple[str, str, str]]:
    """Return what the check names: (difference, table, column)."""
    return {(row["difference"], row["table"], row.get("column", "")) for row in list_differences()}


def find_pseudonym(inbox: InboxScenario) -> str:
    return people.ensure_pseudonym(inbox.user("administrator"))


def invite(inbox: InboxScenario, name: str) -> User:
    with transaction.atomic():
        invitations.invite_person(inbox.project, name, "reviewer", actor=find_pseudonym(inbox))
    return User.objects.get(username=name)


def join(user: User) -> None:
    with transaction.atomic():
        people.change_own_password(User.objects.get(pk=user.pk), "orbit-lantern-slate-43")
        invitation = Invitation.objects.get(user=user)
        invitations.accept_invitation(invitation.pk, User.objects.get(pk=user.pk))


def reset(inbox: InboxScenario, name: str) -> Membership:
    member = inbox.person(name)
    with transaction.atomic():
        people.reset_member_password(
            member, inbox.user("administrator"), actor=find_pseudonym(inbox)
        )
    return member


def test_a_person_who_is_invited_under_one_name_and_joins_under_another(
    inbox: InboxScenario,
) -> None:
    inbox.rules(ASKS_CAROL)
    user = invite(inbox, "mallory")
    forge((f"UPDATE auth_user SET username = 'carol' WHERE id = {user.pk}",))
    join(user)
    gate = inbox.gate(inbox.plan("a", tool="git.push"))
    inbox.answer(gate, "carol")
    gate.refresh_from_db()
    assert gate.status == "approved"
    assert list_named() == {ALTERED_NAME}


def test_a_person_who_has_another_name_while_their_role_changes(inbox: InboxScenario) -> None:
    inbox.rules(ASKS_CAROL)
    inbox.person("carol")
    member = inbox.person("mallory")
    forge(
        (
            "UPDATE auth_user SET username = 'carol~' WHERE username = 'carol'",
            f"UPDATE auth_user SET username = 'carol' WHERE id = {member.user_id}",
        )
    )
    with transaction.atomic():
        people.change_project_role(
            Membership.objects.get(pk=member.pk), "administrator", actor=find_pseudonym(inbox)
        )
    inbox.answer(inbox.gate(inbox.plan("a", tool="git.push")), "carol")
    forge(
        (
            f"UPDATE auth_user SET username = 'mallory' WHERE id = {member.user_id}",
            "UPDATE auth_user SET username = 'carol' WHERE username = 'carol~'",
        )
    )
    assert list_named() == {ALTERED_NAME}


def test_a_pseudonym_that_reads_like_an_agent(inbox: InboxScenario) -> None:
    """The votes of the person would be shown as acts of the agent."""
    agent = Agent.objects.get(name="deploy-7")
    user = invite(inbox, "eve")
    forge(
        (
            f"UPDATE accounts_person SET pseudonym = 'agent:{agent.id.hex}'"
            f" WHERE user_id = {user.pk}",
        )
    )
    join(user)
    assert ("altered", "accounts_person", "pseudonym") in list_named()


def test_a_giver_of_a_password_who_is_hidden(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = reset(inbox, "dora")
    with monkeypatch.context() as later, transaction.atomic():
        later.setattr(audit_log, "now_us", lambda: now_us() + 3_600_000_000)  # by its entry
        people.change_own_password(member.user, "orbit-lantern-slate-43")
    given_at = Person.objects.get(user=member.user).password_given_at
    assert given_at is not None
    at = given_at + timedelta(minutes=30)
    assert list_named() == set()
    forge(
        (
            "UPDATE accounts_person SET password_given_by = 'gatebook',"
            f" password_given_at = '{at:%Y-%m-%d %H:%M:%S.%f}' WHERE user_id = {member.user_id}",
        )
    )
    both = ("password_given_at", "password_given_by")
    assert list_named() == {("changed", "accounts_person", column) for column in both}


def test_a_giver_of_a_password_who_gave_none(inbox: InboxScenario) -> None:
    user = invite(inbox, "dora")
    join(user)
    assert list_named() == set()
    other = people.ensure_pseudonym(inbox.user("operator"))
    forge(
        (
            f"UPDATE accounts_person SET password_given_by = '{other}'"
            f" WHERE user_id = {inbox.person('grace').user_id}",
            f"UPDATE accounts_person SET password_given_by = '{other}' WHERE user_id = {user.pk}",
        )
    )
    named = [row["key"]["user_id"] for row in list_differences()]
    assert set(named) == {user.pk, User.objects.get(username="grace").pk}


def test_an_unusable_password_of_a_member(inbox: InboxScenario) -> None:
    """It keeps the person out. The trigger takes the mark of their own password away."""
    member = inbox.person("dora")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE auth_user SET password = '!x' WHERE id = {member.user_id}")
    assert ALTERED_PASSWORD in list_named()


def test_a_first_password_that_counts_as_own(inbox: InboxScenario) -> None:
    user = invite(inbox, "eve")
    forge(
        (
            f"UPDATE auth_user SET date_joined = '2001-01-01 00:00:00' WHERE id = {user.pk}",
            f"UPDATE accounts_person SET password_is_own = TRUE WHERE user_id = {user.pk}",
        )
    )
    assert list_named() == {("changed", "accounts_person", "password_is_own")}


@pytest.mark.parametrize("digest", [None, ["x"], 7])
def test_an_entry_of_a_password_without_a_digest(inbox: InboxScenario, digest: object) -> None:
    member = inbox.person("dora")
    person = people.ensure_pseudonym(member.user)
    record_short(
        *(inbox, "admin.password_reset", member.id),
        person=person,
        account="x",
        salt="x",
        password=digest,
    )
    forge((f"UPDATE auth_user SET password = 'md5$salt$0' WHERE id = {member.user_id}",))
    assert {ALTERED_PASSWORD, ("unreadable", "journal_entry", "facts")} <= list_named()


def test_an_invitation_and_an_erasure_soon_after_a_password(inbox: InboxScenario) -> None:
    user = invite(inbox, "eve")
    people.set_password_on_server("eve", "orbit-lantern-slate-46")
    with transaction.atomic():
        invitation = Invitation.objects.get(user=user).pk
        invitations.cancel_invitation(inbox.project, invitation, actor="gatebook")
    invite(inbox, "eve")
    join(user)
    member = reset(inbox, "dora")
    with transaction.atomic():
        person_erasure.end_person_access(member.user, actor="p_1")
    assert list_named() == set()
