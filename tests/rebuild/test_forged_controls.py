"""Rows that decide are folded from the journal, and each that was forged is named and restored."""

from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from pytest_django import Settings

from accounts import agents, invitations, people, projects, repositories, teams, tokens
from accounts.models import AgentToken, Invitation, Project, Repository
from approvals import exemptions, review_settings
from approvals.gates import comments
from approvals.gates.statuses import US
from db import triggers
from db.clock import now_us
from erasure import erasure_requests
from hooks.code_hosts import agent_identities, sources
from journal import erasures
from journal.models import Entry
from ledger import stops
from ledger.tools import cache, registry
from ledger.tools.tools_yaml import ToolDeclaration
from monitoring.stuck import rule_limits
from notifications import channels
from rebuild import checking, short_entries
from retention import retention_sets
from sessions.models import Session
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import IN_FULL
from tests.rebuild.test_forged_rows import Forgery, forge, run
from tests.rebuild.test_rebuilt_stories import list_differences
from tests.rows_with_entries import mark_own_password

pytestmark = pytest.mark.django_db

# Rows of different tables are forged together: each check reads the whole journal.
FORGERIES: Final = (
    Forgery(  # people, agents, rules and settings
        (
            "UPDATE accounts_membership SET role = 'administrator' WHERE role = 'viewer'",
            "UPDATE accounts_agent SET owner_id = NULL, team = 'day' WHERE name = 'nightly'",
            "UPDATE accounts_invitation SET role = 'administrator'",
            "UPDATE approvals_reviewsettings SET stand_in_id = NULL, digest_hour = 8",
            "DELETE FROM approvals_addressee WHERE relation = 'mentioned'",
            "DELETE FROM accounts_teammember",
            "UPDATE accounts_agenttoken SET revoked_at = NULL WHERE scope = 'audit'",
            "UPDATE accounts_repository SET production_refs = '' WHERE name = 'web'",
            "UPDATE approvals_exemption SET tool = '*', minimum = 1",
            "UPDATE ledger_stop SET lifted_at_us = 7, lifted_by_id = set_by_id"
            " WHERE subject = 'deploy'",
            "UPDATE ledger_tool SET reversibility = 'read' WHERE name = 'deploy'",
            "UPDATE approvals_activation SET mode = 'observe' WHERE is_current",
            "UPDATE notifications_notificationchannel SET violations = FALSE,"
            " target = 'x@y.example' WHERE kind = 'email'",
            "UPDATE ledger_breaker SET opened_at_us = NULL, until_us = NULL",
            "UPDATE hooks_codehostsource SET secret_generation = 1, previous_until_us = NULL",
            "UPDATE hooks_agentidentity SET value = 'other-bot'",
        ),
        {
            ("changed", "accounts_membership", "role"),
            ("changed", "accounts_agent", "owner_id"),
            ("changed", "accounts_agent", "team"),
            ("changed", "accounts_invitation", "role"),
            ("changed", "approvals_reviewsettings", "stand_in_id"),
            ("changed", "approvals_reviewsettings", "digest_hour"),
            ("missing", "approvals_addressee", ""),
            ("missing", "accounts_teammember", ""),
            ("changed", "accounts_agenttoken", "revoked_at"),
            ("changed", "accounts_repository", "production_refs"),
            ("changed", "approvals_exemption", "tool"),
            ("changed", "approvals_exemption", "minimum"),
            ("changed", "ledger_stop", "lifted_at_us"),
            ("changed", "ledger_stop", "lifted_by_id"),
            ("changed", "ledger_tool", "reversibility"),
            ("changed", "approvals_activation", "mode"),
            ("changed", "notifications_notificationchannel", "violations"),
            ("changed", "notifications_notificationchannel", "target"),
            ("changed", "ledger_breaker", "opened_at_us"),
            ("changed", "ledger_breaker", "until_us"),
            ("changed", "hooks_codehostsource", "secret_generation"),
            ("changed", "hooks_codehostsource", "previous_until_us"),
            ("changed", "hooks_agentidentity", "value"),
        },
    ),
    Forgery(  # rows that are gone, holds, and what agents do outside of sessions
        (
            "UPDATE accounts_repository SET protected_refs = '' WHERE name = 'fresh'",
            "DELETE FROM approvals_exemptionvote",
            "DELETE FROM notifications_notificationchannel WHERE kind = 'slack'",
            "UPDATE accounts_person SET password_is_own = TRUE WHERE NOT password_is_own",
            "DELETE FROM hooks_agentidentity",
            "DELETE FROM monitoring_stucklimit",
            "UPDATE erasure_legalhold SET released_by_id = set_by_id, released_at_us = 7"
            " WHERE kind = 'session'",
            "UPDATE erasure_legalhold SET words = '[\"other\"]' WHERE kind = 'words'",
            "DELETE FROM agent_sessions_message",
            "UPDATE agent_sessions_lease SET released_at_us = NULL WHERE kind = 'resource'",
            "DELETE FROM agent_sessions_capacity",
            "UPDATE ledger_breaker SET tool = 'git.push'",
            "UPDATE approvals_policyset SET text = 'name: x' WHERE name = 'basic'",
        ),
        {
            ("changed", "accounts_repository", "protected_refs"),
            ("missing", "approvals_exemptionvote", ""),
            ("missing", "notifications_notificationchannel", ""),
            ("changed", "accounts_person", "password_is_own"),
            ("missing", "hooks_agentidentity", ""),
            ("missing", "monitoring_stucklimit", ""),
            ("changed", "erasure_legalhold", "released_by_id"),
            ("changed", "erasure_legalhold", "released_at_us"),
            ("changed", "erasure_legalhold", "words"),
            ("missing", "agent_sessions_message", ""),
            ("changed", "agent_sessions_lease", "released_at_us"),
            ("missing", "agent_sessions_capacity", ""),
            ("added", "ledger_breaker", ""),
            ("missing", "ledger_breaker", ""),
            ("changed", "approvals_policyset", "text"),
        },
    ),
    Forgery(  # more is erased than was asked for, another set is in force, no mail is sent
        (
            "UPDATE erasure_erasurerequest SET project_id = NULL, reason = 'ticket 99',"
            " words = '[\"everything\"]', word_digests = '[]', state = 'confirmed',"
            " confirmed_at_us = 7, confirmed_by_id = (SELECT id FROM auth_user"
            " WHERE username = 'reviewer') WHERE reason = 'ticket 88'",
            "UPDATE erasure_erasurerequest SET keeps_decisions = TRUE WHERE reason = 'ticket 89'",
            "UPDATE retention_retentionset SET text = replace(text, '30 days', '1 days'),"
            " rules = '{}' WHERE activation_position IS NOT NULL",
            "UPDATE retention_retentionset SET activation_position = 1, activated_at_us = 7,"
            " counted_at_us = 7 WHERE activation_position IS NULL",
            "DELETE FROM journal_outbox WHERE topic = 'gate.requested'",
        ),
        {
            *(
                ("changed", "erasure_erasurerequest", column)
                for column in (
                    *("project_id", "reason", "words", "word_digests", "state"),
                    *("confirmed_by_id", "confirmed_at_us", "keeps_decisions"),
                )
            ),
            ("changed", "retention_retentionset", "text"),
            ("changed", "retention_retentionset", "rules"),
            ("changed", "retention_retentionset", "activation_position"),
            ("missing", "journal_outbox", ""),
        },
    ),
    Forgery(  # the rows of what was asked and loaded are gone
        ("DELETE FROM erasure_erasurerequest", "DELETE FROM retention_retentionset"),
        {
            ("missing", "erasure_erasurerequest", ""),
            ("missing", "retention_retentionset", ""),
        },
    ),
    Forgery(  # two people exchange all that they did
        (
            "UPDATE accounts_person SET pseudonym = 'p_' || pseudonym WHERE user_id IN"
            " (SELECT id FROM auth_user WHERE username IN ('reviewer', 'viewer'))",
            "UPDATE accounts_person SET pseudonym = substr((SELECT other.pseudonym FROM"
            " accounts_person other JOIN auth_user ON id = other.user_id"
            " WHERE username = 'viewer'), 3) WHERE user_id ="
            " (SELECT id FROM auth_user WHERE username = 'reviewer')",
        ),
        {
            ("changed", "accounts_person", "pseudonym"),
            ("changed", "accounts_membership", "user_id"),
        },
    ),
    Forgery(  # two people exchange their names, so that pages show the acts of one as the other's
        (
            "UPDATE auth_user SET username = username || '~' WHERE username IN"
            " ('reviewer', 'viewer')",
            "UPDATE auth_user SET username = 'viewer' WHERE username = 'reviewer~'",
            "UPDATE auth_user SET username = 'reviewer' WHERE username = 'viewer~'",
        ),
        {("changed", "auth_user", "username")},
    ),
    Forgery(  # who added a channel stays unknown until the person is there again
        (
            "DELETE FROM accounts_person WHERE user_id ="
            " (SELECT id FROM auth_user WHERE username = 'administrator')",
        ),
        {("missing", "accounts_person", "")},
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
        mark_own_password(User.objects.get(username="zoe"))
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


def furnish_settings(inbox: InboxScenario) -> None:
    """Write the settings that decide who hears, which events count, and what is held."""
    administrator, agent = inbox.user("administrator"), inbox.organization.agent
    with transaction.atomic():
        channels.add_channel(
            inbox.project, "email", "team@example.org", administrator, violations=True
        )
        slack = channels.add_channel(
            inbox.project,
            "slack",
            "https://hooks.example.org/services/T0/B0/0123456789abcdef",
            administrator,
        )
        channels.update_channel(slack, administrator, stuck=True)
        people.reset_member_password(inbox.person("grace"), administrator, actor="p_1")
        source = sources.add_source(inbox.project, "github", "web", actor="gatebook")
        sources.rotate_source_secret(source, 24, actor="gatebook")
        agent_identities.add_identity(agent, "github", "deploy-bot", actor="gatebook")
        rule_limits.set_limit(agent, "start_s", 60, actor="gatebook")
    session = Session.objects.get(key="s-1")
    erasure_requests.set_legal_hold(administrator, inbox.project, reason="case 12", session=session)
    erasure_requests.set_legal_hold(
        administrator, inbox.project, reason="case 13", words=["Jane Roe"]
    )


RETENTION: Final = """
name: short
classes: [{name: brief, keep: 30 days}]
rules: [{kind: effect.*, class: brief}]
"""


def furnish_erasures(inbox: InboxScenario) -> None:
    """Ask for erasures, and load retention sets, one of which is in force."""
    administrator, project = inbox.user("administrator"), inbox.project
    for ticket, word in (("ticket 88", "Jane Roe"), ("ticket 89", "John Doe")):
        erasure_requests.request_erasure(
            administrator, project=project, reason=ticket, words=[word]
        )
    row = retention_sets.load_retention_set(project, RETENTION)
    retention_sets.save_set(row, counted_at_us=5, counted_position=row.counted_end)
    retention_sets.activate_retention_set(row.pk, project, 5)
    retention_sets.load_retention_set(project, RETENTION.replace("30", "60"))


def act_outside_of_sessions(inbox: InboxScenario) -> None:
    """Let an agent hold a resource, write, report its capacity, and fail until its tool pauses."""
    agent = inbox.agent
    lease = agent.post("/leases", {"process": "p-1", "resource": "web@main"}).json()
    agent.post(f"/leases/{lease['id']}/release", {"epoch": lease["epoch"]})
    for path, body in (
        ("/messages", {"to": "shared", "body": "main is free"}),
        ("/capacity", {"context_left_tokens": 9_000}),
    ):
        assert agent.post(path, body).status_code in (200, 201)
    with transaction.atomic():
        registry.declare_tools(
            inbox.project,
            [
                ToolDeclaration("git.push", "idempotent", "compensable", fields={"to": "/ref"}),
                ToolDeclaration("deploy", "opaque", "irreversible", description="Deploys."),
                ToolDeclaration(
                    "file.read", "read_only", "read", breaker_failures=1, breaker_pause_s=600
                ),
            ],
        )
    cache.clear_tool_cache()
    effect = inbox.plan("read", tool="file.read")
    agent.dispatch(effect)
    agent.fail(effect, "timeout")


@pytest.mark.deepened
def test_every_forged_control_is_named_and_restored(
    inbox: InboxScenario, settings: Settings
) -> None:
    settings.GATEBOOK_WEBHOOK_HOSTS = frozenset(("hooks.example.org",))
    furnish(inbox)
    furnish_settings(inbox)
    furnish_erasures(inbox)
    act_outside_of_sessions(inbox)
    assert list_differences() == []
    for forgery in FORGERIES[:: 1 if IN_FULL else 3]:
        forge(forgery.statements)
        named = {
            (row["difference"], row["table"], row.get("column", "")) for row in list_differences()
        }
        assert named == forgery.named, forgery
        run()
        assert list_differences() == [], forgery


def test_a_password_that_only_seems_to_be_their_own_is_named(inbox: InboxScenario) -> None:
    first, reset = inbox.user("administrator"), inbox.person("grace")
    projects.create_archive("old", UUID(int=7))  # the first of all, where nothing is recorded
    with transaction.atomic():
        people.change_own_password(first, "orbit-lantern-slate-43")
        people.reset_member_password(reset, first, actor="p_1")
        people.add_project_member(
            inbox.project, "later", "viewer", "orbit-lantern-slate-44", must_replace=True
        )
        earlier = User.objects.create(username="earlier", password="md5$salt$0")
        people.ensure_pseudonym(earlier)
    assert list_differences() == []
    # Other passwords with the same salts, of accounts that seem to be older than any entry.
    forge(
        (
            "UPDATE auth_user SET password = password || 'x', date_joined = '2001-01-01 00:00:00'",
            "UPDATE accounts_person SET password_is_own = TRUE",
        )
    )
    named = list_differences()
    assert {(row["table"], row["column"]) for row in named} == {
        ("accounts_person", "password_is_own"),
        ("auth_user", "password"),
    }
    others = set(User.objects.exclude(pk=earlier.pk).values_list("pk", flat=True))
    marked = {row["key"]["user_id"] for row in named if row["column"] == "password_is_own"}
    replaced = {row["key"]["id"] for row in named if row["column"] == "password"}
    assert marked == replaced == others
    # A person whom no entry names may have set it in an earlier version.
    assert ("accounts_person", "password_is_own") in list_unknown()
    run()
    assert not people.has_own_password(first)
    assert Entry.objects.get(kind="integrity.rebuilt").project == inbox.project.id
    # The passwords themselves cannot be restored: people set others.
    assert {row["column"] for row in list_differences()} == {"password"}


def list_unknown() -> set[tuple[str, str]]:
    """What cannot be compared, by table and column."""
    results = checking.check_batches(None)
    return {(table, column) for result in results for table, column, _reason in result.unknown}


def test_erased_texts_are_compared_by_their_digests(inbox: InboxScenario) -> None:
    furnish(inbox)
    with transaction.atomic():
        agent_identities.add_identity(
            inbox.organization.agent, "github", "deploy-bot", actor="gatebook"
        )
    kinds = (
        *("admin.tools_loaded", "admin.repository_changed", "admin.identity_added"),
        *("stop.set", "exemption.requested", "policy.loaded"),
    )
    for position in Entry.objects.filter(kind__in=kinds).values_list("position", flat=True):
        with transaction.atomic():
            erasures.erase_body(
                inbox.project.id, position, reason="ticket", actor="p_1", now_us=now_us()
            )
    assert list_differences() == []
    of_controls = {
        *("ledger_tool", "ledger_stop", "accounts_repository", "approvals_exemption"),
        *("approvals_policyset", "hooks_agentidentity"),
    }
    assert [pair for pair in list_unknown() if pair[0] in of_controls] == []
    forge(
        (
            "UPDATE ledger_tool SET reversibility = 'read' WHERE name = 'deploy'",
            "UPDATE ledger_stop SET subject = 'none' WHERE lifted_at_us IS NULL",
            "UPDATE accounts_repository SET protected_refs = '' WHERE name = 'web'",
            "UPDATE approvals_exemption SET tool = '*'",
            "UPDATE approvals_policyset SET text = 'name: basic'",
            "UPDATE hooks_agentidentity SET value = 'other-bot'",
            "DELETE FROM ledger_tool WHERE name = 'git.push'",
        )
    )
    # The right values are erased; what is known is that these are others.
    assert {
        (row["difference"], row["table"], row.get("column", "")) for row in list_differences()
    } == {
        ("altered", "ledger_tool", "declaration"),
        ("lost", "ledger_tool", ""),
        ("altered", "ledger_stop", "subject"),
        ("altered", "accounts_repository", "protected_refs"),
        ("altered", "approvals_exemption", "scope"),
        ("altered", "approvals_policyset", "text"),
        ("altered", "hooks_agentidentity", "value"),
    }
    assert run("--check")[0] == 1
    assert run()[0] == 1


@pytest.mark.matrix
def test_rules_are_compared_with_their_text_after_its_entry_is_erased(
    inbox: InboxScenario,
) -> None:
    for position in Entry.objects.filter(kind="policy.loaded").values_list("position", flat=True):
        with transaction.atomic():
            erasures.erase_body(
                inbox.project.id, position, reason="ticket", actor="p_1", now_us=now_us()
            )
    assert list_differences() == []
    assert [pair for pair in list_unknown() if pair[0] == "approvals_policyset"] == []
    forge(("UPDATE approvals_policyset SET rules = '{}', name = 'other'",))
    assert {(row["difference"], row.get("column")) for row in list_differences()} == {
        ("changed", "rules"),
        ("changed", "name"),
    }
    assert run()[0] == 0
    assert list_differences() == []
    forge(("DELETE FROM approvals_activation", "DELETE FROM approvals_policyset"))
    assert {(row["difference"], row["table"]) for row in list_differences()} == {
        ("missing", "approvals_activation"),
        ("lost", "approvals_policyset"),
    }


@pytest.mark.matrix
def test_a_repository_with_changed_patterns_keeps_its_name(inbox: InboxScenario) -> None:
    repository = inbox.organization.repository
    with transaction.atomic():
        repositories.change_ref_patterns(
            repository, production="trunk", protected="v*", actor="gatebook"
        )
    assert list_differences() == []
    # Its patterns go with its name: another one of this name would have the usual ones.
    rename = f"UPDATE accounts_repository SET name = 'elsewhere' WHERE name = '{repository.name}'"
    forge((rename,))
    assert {(row["difference"], row["column"]) for row in list_differences()} == {
        ("changed", "name")
    }
    assert run()[0] == 0
    forge(("DELETE FROM accounts_repository WHERE production_refs = 'trunk'",))
    assert {(row["difference"], row["table"]) for row in list_differences()} == {
        ("missing", "accounts_repository")
    }
    assert run()[0] == 0
    restored = Repository.objects.get(pk=repository.pk)
    assert (restored.name, restored.production_refs) == (repository.name, "trunk")
    changed = Entry.objects.get(kind="admin.repository_changed", subject=repository.id)
    with transaction.atomic():
        erasures.erase_body(
            inbox.project.id, changed.position, reason="t-1", actor="p_1", now_us=now_us()
        )
    assert list_differences() == []
    forge((rename,))
    assert {(row["difference"], row["column"]) for row in list_differences()} == {
        ("altered", "name")
    }
    forge(("DELETE FROM accounts_repository WHERE production_refs = 'trunk'",))
    assert {(row["difference"], row["table"]) for row in list_differences()} == {
        ("lost", "accounts_repository")
    }


def test_a_project_stays_as_it_was_created(inbox: InboxScenario) -> None:
    projects.create_archive("old", UUID(int=7))
    assert list_differences() == []
    forge(
        (
            "UPDATE accounts_project SET redacts = FALSE, name = 'elsewhere' WHERE name = 'default'",
            "UPDATE accounts_project SET archive = FALSE WHERE name = 'old'",
        )
    )
    named = list_differences()
    assert {(row["difference"], row["table"], row["column"]) for row in named} == {
        ("changed", "accounts_project", column) for column in ("redacts", "name", "archive")
    }
    assert run()[0] == 0
    inbox.project.refresh_from_db()
    assert (inbox.project.name, inbox.project.redacts) == ("default", True)
    created = Entry.objects.get(kind="admin.project_created", subject=inbox.project.id)
    with transaction.atomic():
        erasures.erase_body(
            inbox.project.id, created.position, reason="t-1", actor="p_1", now_us=now_us()
        )
    assert list_differences() == []
    forge(("UPDATE accounts_project SET name = 'elsewhere' WHERE name = 'default'",))
    assert {(row["difference"], row["column"]) for row in list_differences()} == {
        ("altered", "name")
    }


def test_a_project_that_is_gone_is_named(inbox: InboxScenario) -> None:
    projects.create_project("unused")
    forge(("DELETE FROM accounts_project WHERE name = 'unused'",))
    assert {(row["difference"], row["table"]) for row in list_differences()} == {
        ("missing", "accounts_project")
    }
    assert run()[0] == 0
    assert list_differences() == []


def test_a_project_that_no_entry_created_is_named_and_removed(inbox: InboxScenario) -> None:
    Project.objects.create(
        name="forged", created_at=datetime(2020, 1, 1, tzinfo=UTC), redacts=False
    )
    assert {(row["difference"], row["table"]) for row in list_differences()} == {
        ("added", "accounts_project")
    }
    assert run()[0] == 0
    assert not Project.objects.filter(name="forged").exists()
    assert list_differences() == []


def test_a_project_from_before_such_entries_is_clean(inbox: InboxScenario) -> None:
    furnish(inbox)
    with transaction.atomic(), triggers.suspend_triggers(connection, ["journal_entry"]):
        Entry.objects.filter(kind="admin.project_created").update(kind="admin.project_noted")
    assert list_differences() == []
    assert ("accounts_project", "*") in list_unknown()
    projects.create_project("later")
    assert list_differences() == []


def test_a_renamed_sample_and_a_project_of_an_earlier_version_are_clean(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects.show_sample(projects.create_sample(actor="gatebook"), actor="gatebook")
    monkeypatch.setattr(projects, "_list_facts", lambda _project, mode: {"mode": mode})
    monkeypatch.setattr(short_entries, "FULL_FACTS", {})  # all entries are of that version
    earlier = projects.create_project("earlier")
    assert list_differences() == []
    forge((f"UPDATE accounts_project SET redacts = FALSE WHERE name = '{earlier.name}'",))
    assert ("accounts_project", "redacts") in list_unknown()
    Project.objects.filter(name__startswith="Sample").update(name="Sample 9")
    assert {(row["difference"], row["column"]) for row in list_differences()} == {
        ("changed", "name")
    }
