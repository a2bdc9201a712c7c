"""Rows that decide are folded from the journal, and each that was forged is named and restored."""

from typing import Final

import pytest
from django.db import transaction

from accounts import agents, invitations, people, repositories, teams, tokens
from accounts.models import AgentToken, Invitation, Person
from approvals import exemptions, review_settings
from approvals.gates import comments
from approvals.gates.statuses import US
from db.clock import now_us
from journal import erasures
from journal.models import Entry
from ledger import stops
from ledger.tools import registry
from ledger.tools.tools_yaml import ToolDeclaration
from rebuild import batches, checking
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.rebuild.test_forged_rows import Forgery, forge, run
from tests.rebuild.test_rebuilt_stories import list_differences

pytestmark = pytest.mark.django_db

FORGERIES: Final = (
    Forgery(
        ("UPDATE accounts_membership SET role = 'administrator' WHERE role = 'viewer'",),
        {("changed", "accounts_membership", "role")},
    ),
    Forgery(
        ("UPDATE accounts_agent SET owner_id = NULL, team = 'day' WHERE name = 'nightly'",),
        {("changed", "accounts_agent", "owner_id"), ("changed", "accounts_agent", "team")},
    ),
    Forgery(
        ("UPDATE accounts_invitation SET role = 'administrator'",),
        {("changed", "accounts_invitation", "role")},
    ),
    Forgery(
        ("UPDATE approvals_reviewsettings SET stand_in_id = NULL, digest_hour = 8",),
        {
            ("changed", "approvals_reviewsettings", "stand_in_id"),
            ("changed", "approvals_reviewsettings", "digest_hour"),
        },
    ),
    Forgery(
        ("DELETE FROM approvals_addressee WHERE relation = 'mentioned'",),
        {("missing", "approvals_addressee", "")},
    ),
    Forgery(
        ("DELETE FROM accounts_teammember",),
        {("missing", "accounts_teammember", "")},
    ),
    Forgery(
        ("UPDATE accounts_agenttoken SET revoked_at = NULL WHERE scope = 'audit'",),
        {("changed", "accounts_agenttoken", "revoked_at")},
    ),
    Forgery(
        ("UPDATE accounts_repository SET production_refs = '' WHERE name = 'web'",),
        {("changed", "accounts_repository", "production_refs")},
    ),
    Forgery(
        ("UPDATE accounts_repository SET protected_refs = '' WHERE name = 'fresh'",),
        {("changed", "accounts_repository", "protected_refs")},
    ),
    Forgery(
        ("UPDATE approvals_exemption SET tool = '*', minimum = 1",),
        {
            ("changed", "approvals_exemption", "tool"),
            ("changed", "approvals_exemption", "minimum"),
        },
    ),
    Forgery(
        ("DELETE FROM approvals_exemptionvote",),
        {("missing", "approvals_exemptionvote", "")},
    ),
    Forgery(
        ("UPDATE ledger_stop SET lifted_at_us = 7, lifted_by_id = set_by_id",),
        {("changed", "ledger_stop", "lifted_at_us"), ("changed", "ledger_stop", "lifted_by_id")},
    ),
    Forgery(
        ("UPDATE ledger_tool SET reversibility = 'read' WHERE name = 'deploy'",),
        {("changed", "ledger_tool", "reversibility")},
    ),
    Forgery(
        ("UPDATE approvals_activation SET mode = 'observe' WHERE is_current",),
        {("changed", "approvals_activation", "mode")},
    ),
    Forgery(
        ("UPDATE approvals_policyset SET text = 'name: x' WHERE name = 'basic'",),
        {("changed", "approvals_policyset", "text")},
    ),
)


def furnish(inbox: InboxScenario) -> None:
    """Write every kind of row that decides, and change some of them."""
    organization, person = inbox.organization, inbox.user("operator")
    reviewer, grace = inbox.person("reviewer"), inbox.person("grace")
    inbox.rules()
    gate = inbox.gate(inbox.plan())
    comments.assign_gate(gate, reviewer, "grace")
    comments.write_comment(gate, reviewer, "@grace, is this yours?")
    now = now_us()
    review_settings.save_absence(grace, now, now + 60 * US, "reviewer")
    review_settings.save_digest(grace, 7, "grace@example.org")
    with transaction.atomic():
        people.change_project_role(organization.members["viewer"], "operator", actor="gatebook")
        people.change_project_role(organization.members["viewer"], "viewer", actor="gatebook")
        team = teams.create_team(inbox.project, "leads")
        agent = agents.ensure_agent(inbox.project, "nightly", person)
        agents.set_agent_team(agent, "night")
        agents.set_agent_charter(agent, "Runs at night.", version=0, actor="gatebook")
        for name in ("eve", "zoe"):
            invitations.invite_person(inbox.project, name, "viewer", actor="gatebook")
        Person.objects.filter(user__username="zoe").update(password_is_own=True)
        joined = Invitation.objects.get(user__username="zoe")
        invitations.accept_invitation(joined.id, joined.user)
        teams.add_team_member(team, organization.members["reviewer"])
        tokens.issue_token(organization.agent, scope="audit", expires_in=None, actor="gatebook")
        tokens.revoke_agent_token(AgentToken.objects.get(scope="audit"), actor="gatebook")
        repositories.ensure_repository(inbox.project, "fresh")
        repositories.change_ref_patterns(
            organization.repository, production="trunk", protected="v*", actor="gatebook"
        )
        registry.declare_tools(
            inbox.project,
            [
                ToolDeclaration("git.push", "idempotent", "compensable", fields={"to": "/ref"}),
                ToolDeclaration("deploy", "opaque", "irreversible", description="Deploys."),
            ],
        )
        exemptions.create_exemption(
            inbox.project,
            tool="deploy",
            reason="The release train, INC-204.",
            ends_at_us=now_us() + 3600 * US,
            user=person,
            **proved(),
        )
        ended = stops.set_stop(inbox.project, "tool", "git.push", "it pushes too much", person)
        stops.lift_stop(ended, "it is mended", person)
        stops.set_stop(inbox.project, "tool", "deploy", "it deploys too much", person)


def test_every_forged_control_is_named_and_restored(inbox: InboxScenario) -> None:
    furnish(inbox)
    assert list_differences() == []
    for forgery in FORGERIES:
        if "ledger_stop" in forgery.statements[0]:
            statement = f"{forgery.statements[0]} WHERE subject = 'deploy'"
            forgery = Forgery((statement,), forgery.named)
        forge(forgery.statements)
        named = {
            (row["difference"], row["table"], row.get("column", "")) for row in list_differences()
        }
        assert named == forgery.named, forgery
        run()
        assert list_differences() == [], forgery


def list_unknown() -> set[tuple[str, str]]:
    """What cannot be compared, by table and column."""
    results = checking.check_batches(None, batches.NO_SESSION)
    return {(table, column) for result in results for table, column, _reason in result.unknown}


def test_erased_texts_are_compared_by_their_digests(inbox: InboxScenario) -> None:
    furnish(inbox)
    kinds = ("admin.tools_loaded", "admin.repository_changed", "stop.set", "exemption.requested")
    for position in Entry.objects.filter(kind__in=kinds).values_list("position", flat=True):
        with transaction.atomic():
            erasures.erase_body(
                inbox.project.id, position, reason="ticket", actor="p_1", now_us=now_us()
            )
    assert list_differences() == []
    of_controls = {"ledger_tool", "ledger_stop", "accounts_repository", "approvals_exemption"}
    assert [pair for pair in list_unknown() if pair[0] in of_controls] == []
    forge(
        (
            "UPDATE ledger_tool SET reversibility = 'read' WHERE name = 'deploy'",
            "UPDATE ledger_stop SET subject = 'none' WHERE lifted_at_us IS NULL",
            "UPDATE accounts_repository SET protected_refs = '' WHERE name = 'web'",
            "UPDATE approvals_exemption SET tool = '*'",
        )
    )
    # The right values are erased; what is known is that these are others.
    assert list_unknown() >= {
        ("ledger_tool", "reversibility"),
        ("ledger_stop", "subject"),
        ("accounts_repository", "protected_refs"),
        ("approvals_exemption", "tool"),
    }
