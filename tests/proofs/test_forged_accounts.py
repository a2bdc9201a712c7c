"""Nobody with the application's database role gets a role, a team, a token or another name."""

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from pytest_django import Settings

from accounts import agents, invitations, people, repositories, teams, tokens
from accounts.models import (
    Agent,
    AgentToken,
    Invitation,
    Membership,
    Person,
    Repository,
    TeamMember,
)
from db.ids import new_uuid7
from erasure import person_erasure
from tests.journal.committed import committed
from tests.pages import people as pages_people
from tests.pages.people import Organization
from tests.proofs.forgeries import Forgery, assert_refused, copy_row
from tests.rows_with_entries import mark_own_password

__all__ = ["committed"]


@pytest.fixture
def written(committed: None, settings: Settings) -> Organization:
    """Two projects, built by transactions of their own."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return pages_people.build()


def test_roles_and_teams_change_only_with_their_entry(written: Organization) -> None:
    viewer, reviewer = written.members["viewer"], written.members["reviewer"]
    # An entry of an earlier change does not allow the same change again.
    people.change_project_role(viewer, "administrator", actor="gatebook")
    people.change_project_role(viewer, "viewer", actor="gatebook")
    security = teams.create_team(written.project, "security")
    other = teams.create_team(written.project, "other")
    teams.add_team_member(security, viewer)
    teams.remove_team_member(security, viewer)
    teams.add_team_member(security, reviewer)
    teams.add_team_member(other, viewer)
    listed = TeamMember.objects.get(membership=viewer)
    stranger = User.objects.get(username="neighbour")
    into_team = (
        "INSERT INTO accounts_teammember (id, project_id, team_id, membership_id)"
        " VALUES (%s, %s, %s, %s)"
    )
    raised = "UPDATE accounts_membership SET role = 'administrator' WHERE id = %s"
    assert_refused(
        [
            Forgery("raise a role", "role_changes_with_its_entry", raised, (reviewer.id,)),
            Forgery("raise it again", "role_changes_with_its_entry", raised, (viewer.id,)),
            Forgery(
                "give a role to another person",
                "membership_keeps_its_person",
                "UPDATE accounts_membership SET user_id = %s WHERE id = %s",
                (stranger.pk, written.members["administrator"].id),
            ),
            Forgery(
                "join a project",
                "membership_starts_with_its_entry",
                copy_row(
                    "accounts_membership",
                    reviewer.id,
                    id=f"'{new_uuid7().hex}'",
                    user_id=str(stranger.pk),
                ),
            ),
            Forgery(
                "drop a member",
                "membership_ends_with_its_entry",
                "DELETE FROM accounts_membership WHERE id = %s",
                (written.members["operator"].id,),
            ),
            Forgery(
                "join a team again",
                "team_member_starts_with_its_entry",
                into_team,
                (new_uuid7(), written.project.id, security.id, viewer.id),
            ),
            Forgery(
                "move to another team",
                "team_member_never_changes",
                "UPDATE accounts_teammember SET team_id = %s WHERE id = %s",
                (security.id, listed.id),
            ),
            Forgery(
                "drop a team's member",
                "team_member_ends_with_its_entry",
                "DELETE FROM accounts_teammember WHERE id = %s",
                (listed.id,),
            ),
            Forgery(
                "rename a team",
                "team_keeps_its_name",
                "UPDATE accounts_team SET name = 'elsewhere' WHERE id = %s",
                (security.id,),
            ),
        ]
    )
    people.remove_project_member(viewer, actor="gatebook")
    assert not Membership.objects.filter(pk=viewer.pk).exists()


def test_agents_change_hands_only_with_their_entry(written: Organization) -> None:
    project, reviewer = written.project, written.members["reviewer"].user
    agent = Agent.objects.get(pk=written.agent.pk)
    # An entry of an earlier change does not allow the same change again.
    other = agents.ensure_agent(project, "nightly")
    agents.ensure_agent(project, "nightly", reviewer)
    for team in ("night", "day"):
        agents.set_agent_team(other, team)
    owned, update = (
        "agent_owner_changes_with_its_entry",
        "UPDATE accounts_agent SET {} WHERE id = %s",
    )
    team = "agent_team_changes_with_its_entry"
    assert_refused(
        [
            Forgery("take an agent", owned, update.format("owner_id = NULL"), (other.id,)),
            Forgery(
                "give an agent", owned, update.format(f"owner_id = {reviewer.pk}"), (agent.id,)
            ),
            Forgery("join a team", team, update.format("team = 'night'"), (agent.id,)),
            Forgery("join it again", team, update.format("team = 'night'"), (other.id,)),
            Forgery(
                "rename an agent", "agent_keeps_its_name", update.format("name = 'x'"), (agent.id,)
            ),
            Forgery(
                "start in a team",
                "agent_starts_with_its_entry",
                copy_row("accounts_agent", other.id, id=f"'{new_uuid7().hex}'", name="'new'"),
            ),
        ]
    )
    assert Agent.objects.get(pk=other.pk).team == "day"


def test_invitations_are_made_only_with_their_entry(written: Organization) -> None:
    actor = people.ensure_pseudonym(written.members["administrator"].user)
    for name in ("eve", "zoe"):
        invitations.invite_person(written.project, name, "viewer", actor=actor)
    invitation = Invitation.objects.get(user__username="eve")
    raised = "UPDATE accounts_invitation SET role = 'administrator' WHERE id = %s"
    stranger = User.objects.get(username="neighbour")
    assert_refused(
        [
            Forgery("raise its role", "invitation_never_changes", raised, (invitation.id,)),
            Forgery(
                "invite another person",
                "invitation_is_made_with_its_entry",
                copy_row(
                    "accounts_invitation",
                    invitation.id,
                    id=f"'{new_uuid7().hex}'",
                    user_id=str(stranger.pk),
                ),
            ),
            Forgery(
                "drop an invitation",
                "invitation_ends_with_its_entry",
                "DELETE FROM accounts_invitation WHERE id = %s",
                (invitation.id,),
            ),
        ]
    )
    invitations.cancel_invitation(written.project, invitation.id, actor=actor)
    mark_own_password(User.objects.get(username="zoe"))
    joined = Invitation.objects.get(user__username="zoe")
    assert invitations.accept_invitation(joined.id, joined.user).role == "viewer"
    assert not Invitation.objects.exists()


def test_tokens_are_issued_and_revoked_only_with_their_entry(written: Organization) -> None:
    with transaction.atomic():
        tokens.issue_token(written.agent, scope="audit", expires_in=None, actor="gatebook")
    revoked = written.token
    tokens.revoke_agent_token(revoked, actor="gatebook")
    audit = AgentToken.objects.get(scope="audit")
    update = "UPDATE accounts_agenttoken SET {} WHERE id = %s"
    kept = "token_keeps_its_secret"
    assert_refused(
        [
            Forgery(
                "restore a revoked token",
                "token_is_revoked_with_its_entry",
                update.format("revoked_at = NULL"),
                (revoked.id,),
            ),
            Forgery(
                "revoke a token",
                "token_is_revoked_with_its_entry",
                update.format("revoked_at = created_at"),
                (audit.id,),
            ),
            Forgery("widen a token", kept, update.format("scope = 'import'"), (audit.id,)),
            Forgery(
                "swap a secret",
                kept,
                update.format(
                    f"digest = (SELECT digest FROM accounts_agenttoken"
                    f" WHERE id = '{written.other_token.id.hex}')"
                ),
                (audit.id,),
            ),
            Forgery(
                "act as another agent",
                kept,
                update.format(f"agent_id = '{written.other_token.agent_id.hex}'"),
                (audit.id,),
            ),
            Forgery(
                "issue a token",
                "token_is_issued_with_its_entry",
                copy_row(
                    "accounts_agenttoken",
                    audit.id,
                    id=f"'{new_uuid7().hex}'",
                    public_id="'forged00'",
                ),
            ),
            Forgery(
                "delete a token",
                "token_is_never_deleted",
                "DELETE FROM accounts_agenttoken WHERE id = %s",
                (revoked.id,),
            ),
        ]
    )
    assert AgentToken.objects.get(pk=revoked.pk).revoked_at is not None


def test_ref_patterns_change_only_with_their_entry(written: Organization) -> None:
    web = written.repository
    change = {"protected": "", "actor": "gatebook"}
    assert repositories.change_ref_patterns(web, production="trunk", **change)
    update = "UPDATE accounts_repository SET {} WHERE id = %s"
    changes = "ref_patterns_change_with_their_entry"
    emptied = "production_refs = '', protected_refs = ''"
    next_version = f"{emptied}, patterns_version = patterns_version + 1"
    assert_refused(
        [
            Forgery("empty the patterns", changes, update.format(emptied), (web.id,)),
            Forgery("as the next version", changes, update.format(next_version), (web.id,)),
            Forgery(
                "rename a repository",
                "repository_keeps_its_name",
                update.format("name = 'elsewhere'"),
                (web.id,),
            ),
            Forgery(
                "start without patterns",
                "repository_starts_with_the_usual_patterns",
                copy_row(
                    "accounts_repository",
                    web.id,
                    id=f"'{new_uuid7().hex}'",
                    name="'new'",
                    production_refs="''",
                    patterns_version="1",
                ),
            ),
            Forgery(
                "delete a repository",
                "repository_is_never_deleted",
                "DELETE FROM accounts_repository WHERE id = %s",
                (web.id,),
            ),
        ]
    )
    assert repositories.change_ref_patterns(web, production="main", **change)
    assert Repository.objects.get(pk=web.pk).patterns_version == 3


def test_history_is_not_attributed_to_another_person(written: Organization) -> None:
    reviewer, viewer = (Person.objects.get(user__username=name) for name in ("reviewer", "viewer"))
    swap = "UPDATE accounts_person SET pseudonym = %s WHERE user_id = %s"
    assert_refused(
        [
            Forgery(
                "rename a pseudonym", "pseudonym_never_changes", swap, ("p_x", reviewer.user_id)
            ),
            Forgery(
                "drop a pseudonym",
                "pseudonym_is_never_deleted",
                "DELETE FROM accounts_person WHERE user_id = %s",
                (viewer.user_id,),
            ),
            Forgery(
                "rename an account",
                "account_keeps_its_username",
                "UPDATE auth_user SET username = 'somebody' WHERE id = %s",
                (viewer.user_id,),
            ),
        ]
    )


def test_accounts_are_closed_and_opened_only_with_their_entry(written: Organization) -> None:
    viewer, reviewer, operator = (
        written.members[name].user for name in ("viewer", "reviewer", "operator")
    )
    # An entry of an earlier change does not allow the same change again, nor one of a project that
    # the person has left.
    people.close_account("viewer")
    people.open_account("viewer")
    left = people.add_project_member(written.other, "reviewer", "viewer")
    people.close_account("reviewer")
    people.open_account("reviewer")
    people.remove_project_member(left, actor="gatebook")
    people.close_account("reviewer")
    update = "UPDATE auth_user SET is_active = {} WHERE id = %s"
    closed, opened = "account_is_closed_with_its_entry", "account_is_opened_with_its_entry"
    assert_refused(
        [
            Forgery("close an account", closed, update.format("FALSE"), (operator.pk,)),
            Forgery("close it again", closed, update.format("FALSE"), (viewer.pk,)),
            Forgery("open an account", opened, update.format("TRUE"), (reviewer.pk,)),
        ]
    )
    people.open_account("reviewer")
    assert User.objects.get(pk=reviewer.pk).is_active
    # No entry opens the account of an erased person.
    person_erasure.end_person_access(viewer, actor="p_1")
    person_erasure.erase_account(viewer)
    viewer.refresh_from_db()
    with transaction.atomic():
        people._record_account(viewer, "admin.account_opened", "gatebook")
        erased = Forgery("open an erased one", opened, update.format("TRUE"), (viewer.pk,))
        with pytest.raises(DatabaseError, match=opened), transaction.atomic():
            erased.execute()


def test_a_password_counts_as_own_only_with_its_entry(written: Organization) -> None:
    owner, given = written.members["reviewer"].user, written.members["viewer"]
    people.change_own_password(owner, "orbit-lantern-slate-43")
    before = given.user.password
    people.reset_member_password(given, written.members["administrator"].user, actor="p_1")
    # Nor does the entry of a password allow it once an administrator has set another.
    with transaction.atomic():
        User.objects.filter(pk=given.user_id).update(password=before)
    # The owner's entry of the earlier password allows nothing for one that another person sets.
    other_hash = User.objects.values_list("password", flat=True).get(username="operator")
    with transaction.atomic():
        User.objects.filter(pk=owner.pk).update(password=other_hash)
    mark = "UPDATE accounts_person SET password_is_own = TRUE WHERE user_id = %s"
    as_new = "INSERT INTO accounts_person (user_id, pseudonym, theme, clock, single_keys,"
    as_new += " password_is_own, password_given_by) VALUES (%s, 'p_new', 'system', 'utc', TRUE,"
    refused = "password_counts_as_own_with_its_entry"
    stranger = User.objects.create(username="stranger", password=other_hash)
    assert_refused(
        [
            Forgery("bring back a password that was reset", refused, mark, (given.user_id,)),
            Forgery("keep a password set by SQL", refused, mark, (owner.pk,)),
            Forgery(
                "start with a password of one's own",
                "person_starts_with_the_entry_of_their_password",
                f"{as_new} TRUE, '')",
                (stranger.pk,),
            ),
        ]
    )
    with transaction.atomic():
        people.change_own_password(owner, "orbit-lantern-slate-44")
    assert people.has_own_password(owner)
