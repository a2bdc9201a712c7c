"""Nobody with the application's database role votes, exempts, lifts a stop or changes rules."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from django.db import transaction
from pytest_django import Settings

from approvals import exemptions, review_settings
from approvals.gates import comments
from approvals.gates.statuses import US
from approvals.models import (
    Activation,
    Addressee,
    Exemption,
    ExemptionVote,
    Gate,
    PolicySet,
    ReviewSettings,
    Vote,
)
from approvals.policies import policy_evaluation
from db.clock import now_us
from db.ids import new_uuid7
from ledger import stops
from ledger.models import Tool
from ledger.tools import registry
from ledger.tools.tools_yaml import ToolDeclaration
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.journal.committed import committed
from tests.pages import people as pages_people
from tests.pages.sample_data import connect_agent
from tests.proofs.forgeries import Forgery, assert_refused, copy_row
from tests.rows_with_entries import add_row

__all__ = ["committed"]
LAX = "name: lax\nrules:\n- {id: all, title: All, match: {}, outcome: allow}\n"
PUSH = ToolDeclaration("git.push", "idempotent", "compensable")
DEPLOY = ToolDeclaration("deploy", "idempotent", "compensable")


@pytest.fixture
def scenario(committed: None, settings: Settings) -> Iterator[InboxScenario]:
    """A project in mode enforce, written by transactions of its own."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    organization = pages_people.build()
    with connect_agent(organization.agent) as caller:
        scenario = InboxScenario(organization, caller)
        scenario.rules()
        registry.declare_tools(scenario.project, [PUSH, DEPLOY])
        yield scenario


def quoted(identity: UUID) -> str:
    return f"'{identity.hex}'"


def test_addressees_and_absences_follow_their_entries(scenario: InboxScenario) -> None:
    gate, other = (scenario.gate(scenario.plan(f"e-{n}", arguments={"n": n})) for n in (1, 2))
    grace, reviewer = scenario.person("grace"), scenario.person("reviewer")
    for name in ("grace", "reviewer"):
        comments.assign_gate(gate, grace, name)
    comments.write_comment(gate, reviewer, "@grace, is this yours?")
    assigned, mentioned = (
        Addressee.objects.get(relation=relation) for relation in ("assigned", "mentioned")
    )
    now = now_us()
    review_settings.save_absence(grace, now, now + 60 * US, "reviewer")
    review_settings.save_digest(grace, 7, "grace@example.org")
    review_settings.save_absence(reviewer, now, now + 60 * US, "")
    row = ReviewSettings.objects.get(user=grace.user)
    update = "UPDATE approvals_reviewsettings SET {} WHERE id = %s"
    absence, added = "absence_changes_with_its_entry", "person_is_addressed_with_its_entry"
    end = "DELETE FROM approvals_addressee WHERE id = %s"
    ended = "addressee_ends_with_its_entry"
    copied = {"id": quoted(new_uuid7()), "gate_id": quoted(other.id)}
    assert_refused(
        [
            Forgery("assign", added, copy_row("approvals_addressee", assigned.id, **copied)),
            Forgery("mention", added, copy_row("approvals_addressee", mentioned.id, **copied)),
            Forgery("unassign", ended, end, (assigned.id,)),
            Forgery("drop a mention", ended, end, (mentioned.id,)),
            Forgery(
                "assign another person",
                "addressee_never_changes",
                f"UPDATE approvals_addressee SET user_id = {grace.user_id} WHERE id = %s",
                (assigned.id,),
            ),
            Forgery("stand in", absence, update.format("stand_in_id = NULL"), (row.id,)),
            Forgery(
                "stay away", absence, update.format("away_until_us = away_until_us + 1"), (row.id,)
            ),
            Forgery(
                "move a digest",
                "digest_changes_with_its_entry",
                update.format("digest_hour = 8"),
                (row.id,),
            ),
            Forgery(
                "be away as another person",
                "review_settings_start_with_their_entry",
                copy_row(
                    "approvals_reviewsettings",
                    row.id,
                    id=quoted(new_uuid7()),
                    user_id=str(scenario.user("operator").pk),
                ),
            ),
        ]
    )
    comments.write_comment(gate, grace, "Yes.")
    assert not Addressee.objects.filter(relation="mentioned").exists()
    comments.assign_gate(gate, grace, "")
    assert not Addressee.objects.exists()


def test_gates_and_votes_follow_their_entries(scenario: InboxScenario) -> None:
    waiting = scenario.gate(scenario.plan("e-1"))
    given = scenario.gate(scenario.plan("e-2", arguments={"ref": "topic"}))
    read = scenario.effect(scenario.plan("e-3", tool="file.read", arguments={}))
    assert scenario.answer(given, "reviewer").refusal is None
    vote, later = Vote.objects.get(), waiting.requested_at_us + 60 * US
    update = "UPDATE approvals_gate SET {} WHERE id = %s"
    denied = "status = 'denied', decided_at_us = requested_at_us, ended_at_us = requested_at_us"
    lasting = "decided_at_us = decided_at_us + 1, permission_until_us = permission_until_us + 1"
    assert_refused(
        [
            Forgery(
                "vote as the reviewer",
                "vote_is_cast_with_its_entry",
                copy_row(
                    "approvals_vote",
                    vote.id,
                    id=quoted(new_uuid7()),
                    gate_id=quoted(waiting.id),
                    shown_digest=f"'{waiting.digest}'",
                ),
            ),
            Forgery("deny", "gate_moves_with_its_entry", update.format(denied), (waiting.id,)),
            Forgery(
                "keep a permission alive",
                "gate_moments_are_of_its_status",
                update.format(lasting),
                (given.id,),
            ),
            Forgery(
                "extend a deadline",
                "gate_is_extended_with_its_entry",
                update.format(f"decide_by_us = {later}"),
                (waiting.id,),
            ),
            Forgery(
                "open a gate without parties",
                "gate_opens_with_its_entry",
                copy_row(
                    "approvals_gate",
                    waiting.id,
                    id=quoted(new_uuid7()),
                    effect_id=quoted(read.id),
                    agent_owner_id="NULL",
                ),
            ),
        ]
    )
    assert Gate.objects.get(id=given.id).status == "approved"
    assert scenario.answer(waiting, "reviewer", "deny", "not now").refusal is None


def test_exemptions_follow_their_entries(scenario: InboxScenario) -> None:
    with transaction.atomic():
        exemption = exemptions.create_exemption(
            scenario.project,
            tool="deploy",
            reason="The release train, INC-204.",
            ends_at_us=now_us() + 3600 * US,
            user=scenario.user("operator"),
            **proved(),
        )
    assert (exemption.minimum, exemption.in_force_at_us) == (2, None)
    vote = ExemptionVote.objects.get()
    administrator = scenario.user("administrator")
    update = "UPDATE approvals_exemption SET {} WHERE id = %s"
    assert_refused(
        [
            Forgery(
                "grant for another person",
                "exemption_vote_is_cast_with_its_entry",
                copy_row(
                    "approvals_exemptionvote",
                    vote.id,
                    id=quoted(new_uuid7()),
                    user_id=str(administrator.pk),
                ),
            ),
            Forgery(
                "request an exemption of every tool",
                "exemption_is_requested_with_its_entry",
                copy_row(
                    "approvals_exemption",
                    exemption.id,
                    id=quoted(new_uuid7()),
                    tool="'*'",
                    minimum="1",
                ),
            ),
            Forgery(
                "revoke an exemption",
                "exemption_is_revoked_with_its_entry",
                update.format(f"revoked_at_us = {now_us()}"),
                (exemption.id,),
            ),
        ]
    )
    moment = now_us()
    confirmation = ExemptionVote(
        exemption=exemption,
        user=administrator,
        step_up="typed_digest",
        password_at_us=moment,
        voted_at_us=moment,
    )
    with transaction.atomic():
        add_row(confirmation)  # enough people, but nothing puts it in force
    assert_refused(
        [
            Forgery(
                "put an exemption in force",
                "exemption_is_granted_with_its_entry",
                update.format(f"in_force_at_us = {moment}"),
                (exemption.id,),
            )
        ]
    )
    assert exemptions.end_exemption(exemption, administrator)
    assert Exemption.objects.get().revoked_at_us is not None


def test_rules_are_those_that_were_loaded_and_activated(scenario: InboxScenario) -> None:
    scenario.rules(LAX)
    lax = Activation.objects.get(is_current=True)
    scenario.rules()
    basic = PolicySet.objects.get(name="basic")
    ended = "UPDATE approvals_activation SET is_current = FALSE WHERE is_current"
    comes = "policy_comes_into_force_with_its_entry"
    assert_refused(
        [
            Forgery("put no rules in force", "policy_goes_out_of_force_with_the_next", ended),
            Forgery(
                "activate earlier rules again",
                comes,
                copy_row("approvals_activation", lax.pk, id="1000"),
            ),
            Forgery(
                "load other rules",
                "policy_set_is_loaded_with_its_entry",
                copy_row("approvals_policyset", basic.id, id=quoted(new_uuid7()), version="9"),
            ),
            Forgery(
                "move an activation",
                "activation_keeps_its_position",
                "UPDATE approvals_activation SET position = 0 WHERE is_current",
            ),
        ]
    )
    scenario.rules(LAX)
    active = policy_evaluation.load_active_policy(scenario.project.id)
    assert active is not None
    assert active.name == "lax@1"


def test_stops_and_tools_follow_their_entries(scenario: InboxScenario) -> None:
    person = scenario.user("operator")
    with transaction.atomic():
        stop = stops.set_stop(scenario.project, "project", "", "it deletes too much", person)
    update = "UPDATE ledger_tool SET {} WHERE name = 'git.push'"
    changes = "tool_changes_with_its_entry"
    push = Tool.objects.get(name="git.push")
    assert_refused(
        [
            Forgery(
                "lift a stop",
                "stop_is_lifted_with_its_entry",
                f"UPDATE ledger_stop SET lifted_at_us = {now_us()}, lifted_by_id = set_by_id"
                " WHERE id = %s",
                (stop.id,),
            ),
            Forgery(
                "set a stop",
                "stop_is_set_with_its_entry",
                copy_row(
                    "ledger_stop",
                    stop.id,
                    id=quoted(new_uuid7()),
                    scope="'tool'",
                    subject="'git.push'",
                ),
            ),
            Forgery("declare it harmless", changes, update.format("reversibility = 'read'")),
            Forgery(
                "as of a later load",
                changes,
                update.format("reversibility = 'read', declared_position = declared_position + 1"),
            ),
            Forgery(
                "declare one more tool",
                "tool_is_declared_with_its_entry",
                copy_row("ledger_tool", push.id, id=quoted(new_uuid7()), name="'bash'"),
            ),
            Forgery(
                "forget a tool",
                "tool_is_removed_with_its_entry",
                "DELETE FROM ledger_tool WHERE name = 'git.push'",
            ),
        ]
    )
    assert stops.lift_stop(stop, "it is mended", person)
    assert registry.declare_tools(scenario.project, [PUSH]).removed == ["deploy"]
