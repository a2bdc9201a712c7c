"""Accounts that were exchanged, and what people's rows say of them, differ from the journal."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from accounts import audit_log, invitations, people
from accounts.models import Invitation, Membership, Person
from db.clock import now_us
from erasure import person_erasure
from journal import erasures
from journal.models import Entry
from rebuild import checking, short_entries
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import PASSWORD
from tests.rebuild.test_forged_rows import forge, run
from tests.rebuild.test_rebuilt_stories import list_differences

pytestmark = pytest.mark.django_db


def name_differences() -> set[tuple[str, str, str]]:
    """What the check names: (difference, table, column) of each."""
    return {(row["difference"], row["table"], row.get("column", "")) for row in list_differences()}


def list_unknown() -> set[tuple[str, str]]:
    """What cannot be compared, by table and column."""
    results = checking.check_batches(None)
    return {(table, column) for result in results for table, column, _reason in result.unknown}


@pytest.fixture
def only_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no entry of the test count as one in the full form, as before an upgrade."""
    monkeypatch.setattr(short_entries, "FULL_FACTS", {})


# An account that seems older than every entry, with its own password, in the place of another.
_EXCHANGE = (
    "INSERT INTO auth_user (username, password, is_superuser, first_name, last_name, email,"
    " is_staff, is_active, date_joined) SELECT 'other', password || 'x', is_superuser, '', '', '',"
    " is_staff, is_active, '2001-01-01 00:00:00' FROM auth_user WHERE username = 'dora'",
    "INSERT INTO accounts_person (user_id, pseudonym, theme, clock, single_keys, password_is_own,"
    " password_given_by) SELECT (SELECT id FROM auth_user WHERE username = 'other'),"
    " 'p_0123456789abcdef', theme, clock, single_keys, TRUE, '' FROM accounts_person WHERE user_id ="
    " (SELECT id FROM auth_user WHERE username = 'dora')",
    "UPDATE accounts_membership SET user_id = (SELECT id FROM auth_user WHERE username = 'other')"
    " WHERE user_id = (SELECT id FROM auth_user WHERE username = 'dora')",
    "DELETE FROM accounts_person WHERE user_id ="
    " (SELECT id FROM auth_user WHERE username = 'dora')",
    "DELETE FROM auth_user WHERE username = 'dora'",
    "UPDATE auth_user SET username = 'dora' WHERE username = 'other'",
)


def test_an_account_in_the_place_of_an_administrator_is_named(inbox: InboxScenario) -> None:
    inbox.person("dora", "administrator")
    assert list_differences() == []
    forge(_EXCHANGE)
    named = {
        ("altered", "accounts_membership", "user_id"),
        ("lost", "accounts_person", ""),
        ("lost", "auth_user", ""),
    }
    assert name_differences() == named
    # The account is in no entry as a whole: what else differs is restored, and this is named again.
    forge(("UPDATE accounts_membership SET role = 'viewer' WHERE role = 'administrator'",))
    code, text = run()
    assert (code, "journal cannot restore" in text) == (1, True), text
    assert "lost: accounts_person" in text
    assert "altered: accounts_membership" in text
    assert name_differences() == named
    # With the membership gone as well, nothing could be inserted for it.
    forge(("DELETE FROM accounts_membership WHERE user_id = (SELECT max(id) FROM auth_user)",))
    lost = {("lost", table, "") for _difference, table, _column in named}
    assert name_differences() == lost
    assert run()[0] == 1


@pytest.mark.usefixtures("only_earlier")
def test_a_pseudonym_of_an_earlier_version_is_never_gone(inbox: InboxScenario) -> None:
    user = User.objects.create(username="earlier", password="md5$salt$0")
    with transaction.atomic():
        add_earlier_member(inbox, user)
    assert list_differences() == []
    forge((f"DELETE FROM accounts_person WHERE user_id = {user.pk}",))
    assert name_differences() == {("lost", "accounts_person", "")}
    assert ("accounts_membership", "user_id") in list_unknown()


def add_earlier_member(inbox: InboxScenario, user: User) -> None:
    """Add a member as a version did that recorded no digest of the account."""
    recorded: Any = people._record

    def record(membership: Membership, kind: str, actor: str, facts: dict[str, str]) -> None:
        recorded(membership, kind, actor, {"person": facts["person"], "role": facts["role"]})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(people, "_record", record)
        people.add_project_member(inbox.project, user.username, "viewer", PASSWORD)


def test_an_erased_person_is_not_lost(inbox: InboxScenario) -> None:
    member = inbox.person("dora", "reviewer")
    person_erasure.end_person_access(member.user, actor="p_1")
    person_erasure.erase_account(member.user)
    added = Entry.objects.filter(kind="admin.member_added", subject=member.id).get()
    with transaction.atomic():
        erasures.erase_body(
            inbox.project.id, added.position, reason="t-1", actor="p_1", now_us=now_us()
        )
    assert list_differences() == []
    pseudonym = Person.objects.get(user=member.user).pseudonym
    assert User.objects.get(pk=member.user.pk).username == pseudonym


def test_an_account_that_is_closed_or_opened_without_its_entry_is_named(
    inbox: InboxScenario,
) -> None:
    closed, eve = inbox.person("dora", "reviewer"), User.objects.create(username="eve")
    inbox.person("vera")
    people.close_account("dora")
    people.close_account("eve")  # who belongs to no project
    assert list_differences() == []
    assert ("auth_user", "is_active") not in list_unknown()
    for name, is_active in (("dora", "TRUE"), ("vera", "FALSE"), ("eve", "TRUE")):
        forge((f"UPDATE auth_user SET is_active = {is_active} WHERE username = '{name}'",))
        assert name_differences() == {("changed", "auth_user", "is_active")}, name
        assert run()[0] == 0
        assert list_differences() == []
    active = set(User.objects.filter(is_active=True).values_list("username", flat=True))
    assert active & {"dora", "vera", "eve"} == {"vera"}
    people.open_account("dora")
    assert list_differences() == []
    assert User.objects.get(pk=closed.user_id).is_active
    assert not User.objects.get(pk=eve.pk).is_active


@pytest.mark.usefixtures("only_earlier")
def test_whether_an_account_of_an_earlier_version_was_closed_is_unknown(
    inbox: InboxScenario,
) -> None:
    recorded: Any = people._record

    def record(membership: Membership, kind: str, actor: str, facts: dict[str, Any]) -> None:
        earlier = {name: value for name, value in facts.items() if name != "active"}
        recorded(membership, kind, actor, earlier)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(people, "_record", record)
        inbox.person("dora")
    forge(("UPDATE auth_user SET is_active = FALSE WHERE username = 'dora'",))
    assert list_differences() == []
    assert ("auth_user", "is_active") in list_unknown()
    people.open_account("dora")  # from now on entries say it
    assert list_differences() == []
    assert ("auth_user", "is_active") not in list_unknown()


@pytest.mark.matrix
def test_who_gave_a_password_is_compared_with_its_reset(inbox: InboxScenario) -> None:
    member, administrator = inbox.person("dora"), inbox.user("administrator")
    giver = people.ensure_pseudonym(administrator)
    with transaction.atomic():
        people.reset_member_password(member, administrator, actor=giver)
        people.change_own_password(member.user, "orbit-lantern-slate-43")
    assert list_differences() == []
    given_at = Person.objects.get(user=member.user, password_given_by=giver).password_given_at
    assert given_at is not None
    both = {"password_given_by", "password_given_at"}
    forged_at = (  # column -> what the insider writes, and what the check names
        ("password_given_by = '', password_given_at = NULL", both),
        ("password_given_by = 'p_other'", {"password_given_by"}),
        ("password_given_at = '2020-01-01 00:00:00'", {"password_given_at"}),
        # later than every vote: no own password has been set since
        ("password_given_by = '', password_given_at = '2099-01-01 00:00:00'", both),
    )
    for forged, columns in forged_at:
        forge((f"UPDATE accounts_person SET {forged} WHERE user_id = {member.user_id}",))
        assert {(row["table"], row["column"]) for row in list_differences()} == {
            ("accounts_person", column) for column in columns
        }, forged
        assert run()[0] == 0
        assert list_differences() == []
        after = Person.objects.get(user=member.user, password_given_by=giver).password_given_at
        assert after is not None
        assert abs(after - given_at) < timedelta(minutes=1)
    # A command on the server gives a password too.
    people.set_password_on_server("dora", "orbit-lantern-slate-44")
    assert list_differences() == []
    forge((f"UPDATE accounts_person SET password_given_by = '{giver}'",))
    assert ("accounts_person", "password_given_by") in {
        (row["table"], row["column"]) for row in list_differences()
    }


def test_a_password_that_was_replaced_in_the_database_is_named(inbox: InboxScenario) -> None:
    member, administrator = inbox.person("dora"), inbox.user("administrator")
    giver = people.ensure_pseudonym(administrator)
    User.objects.create(username="taken", last_login=timezone.now())
    for name in ("invited", "unused", "taken"):
        invitations.invite_person(inbox.project, name, "viewer", actor=giver)
    user = User.objects.get(username="unused")
    invitation = Invitation.objects.get(user=user).pk
    invitations.cancel_invitation(inbox.project, invitation, actor=giver)
    invitations.invite_person(inbox.project, "unused", "viewer", actor=giver)  # another first one
    replaced = User.objects.get(username="invited").password
    assert list_differences() == []

    def list_named() -> set[tuple[str, str, int]]:
        return {
            (row["difference"], row["column"], row["key"]["id"])
            for row in list_differences(tables=("auth_user",))
        }

    people.reset_member_password(member, administrator, actor=giver)
    for name in ("dora", "administrator"):
        forged = User.objects.get(username=name)
        for password in ("md5$salt$0", replaced):  # also a hash that entries give another account
            forge((f"UPDATE auth_user SET password = '{password}' WHERE id = {forged.pk}",))
            assert list_named() == {("altered", "password", forged.pk)}, (name, password)
            forge((f"UPDATE auth_user SET password = '{forged.password}' WHERE id = {forged.pk}",))
        assert list_named() == set()
    # An earlier password of the person is one that was replaced, too.
    people.set_password_on_server("invited", "orbit-lantern-slate-44")
    assert list_named() == set()
    user = User.objects.get(username="invited")
    forge((f"UPDATE auth_user SET password = '{replaced}' WHERE id = {user.pk}",))
    assert list_named() == {("altered", "password", user.pk)}
    assert run("--check", "--table", "auth_user")[0] == 1
    people.set_password_on_server("invited", "orbit-lantern-slate-45")  # as the operator is advised
    assert list_named() == set()


@pytest.mark.matrix
def test_an_invitation_stays_with_its_account(inbox: InboxScenario) -> None:
    with transaction.atomic():
        for name in ("eve", "zoe"):
            invitations.invite_person(inbox.project, name, "operator", actor="gatebook")
    eve, zoe = User.objects.get(username="eve"), User.objects.get(username="zoe")
    # The invitation goes to another account, which takes the invited name as well.
    exchange = (
        f"DELETE FROM accounts_invitation WHERE user_id = {zoe.pk}",
        f"UPDATE accounts_invitation SET user_id = {zoe.pk} WHERE user_id = {eve.pk}",
        f"UPDATE auth_user SET username = 'eve~' WHERE id = {eve.pk}",
        f"UPDATE auth_user SET username = 'eve' WHERE id = {zoe.pk}",
    )
    assert list_differences() == []
    forge(exchange)
    # The account of the name is not the invited one, and the digest does not say which was.
    assert name_differences() == {
        ("altered", "accounts_invitation", "user_id"),
        ("lost", "accounts_invitation", ""),
    }
    forge((f"UPDATE auth_user SET username = 'zoe' WHERE id = {zoe.pk}",))
    forge((f"UPDATE auth_user SET username = 'eve' WHERE id = {eve.pk}",))
    assert name_differences() == {
        ("changed", "accounts_invitation", "user_id"),
        ("missing", "accounts_invitation", ""),
    }
    assert run()[0] == 0
    assert set(Invitation.objects.values_list("user__username", flat=True)) == {"eve", "zoe"}
    assert list_differences() == []


def test_an_invitation_of_an_earlier_version_is_found_by_its_name(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: Any = audit_log.record_admin_entry

    def record(project: Any, kind: str, *, facts: Any, **columns: Any) -> int:
        return int(recorded(project, kind, facts={"role": facts["role"]}, **columns))

    monkeypatch.setattr(invitations, "record_admin_entry", record)
    with transaction.atomic():
        invitations.invite_person(inbox.project, "eve", "operator", actor="gatebook")
    assert list_differences() == []
    viewer = inbox.user("viewer")
    forge((f"UPDATE accounts_invitation SET user_id = {viewer.pk}",))
    assert name_differences() == {("changed", "accounts_invitation", "user_id")}
