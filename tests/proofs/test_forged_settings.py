"""The application's database role does not decide who is notified, what counts or what is erased."""

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from pytest_django import Settings

from accounts import people
from db.ids import new_uuid7
from erasure import erasure_requests, erasure_runner
from erasure.models import ErasureRequest
from hooks.code_hosts import agent_identities, sources
from hooks.models import AgentIdentity, CodeHostSource
from monitoring.models import StuckLimit
from monitoring.stuck import rule_limits
from notifications import channels
from notifications.models import NotificationChannel
from tests.journal.committed import committed
from tests.pages import people as pages_people
from tests.pages.people import Organization
from tests.proofs.forgeries import Forgery, assert_refused, copy_row

__all__ = ["committed"]


@pytest.fixture
def written(committed: None, settings: Settings) -> Organization:
    """Two projects, built by transactions of their own."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return pages_people.build()


def test_channels_change_only_with_their_entry(written: Organization) -> None:
    administrator = written.members["administrator"].user
    team = channels.add_channel(
        written.project, "email", "team@example.org", administrator, violations=True
    )
    gone = channels.add_channel(written.project, "email", "old@example.org", administrator)
    # Entries of earlier changes do not allow the same changes again.
    for value in (False, True):
        channels.update_channel(team, administrator, violations=value)
    channels.retire_channel(gone, administrator)
    update = "UPDATE notifications_notificationchannel SET {} WHERE id = %s"
    changes, ends = "channel_changes_with_its_entry", "channel_is_removed_with_its_entry"
    assert_refused(
        [
            Forgery("hear of nothing", changes, update.format("violations = FALSE"), (team.id,)),
            Forgery("switch it off", changes, update.format("enabled = FALSE"), (team.id,)),
            Forgery("send elsewhere", ends, update.format("target = 'x@y.example'"), (team.id,)),
            Forgery("bring it back", ends, update.format("removed_at_us = NULL"), (gone.id,)),
            Forgery(
                "give it to another person",
                "channel_keeps_its_person",
                update.format(f"person_id = {administrator.pk}"),
                (team.id,),
            ),
            Forgery(
                "add a channel",
                "channel_starts_with_its_entry",
                copy_row(
                    "notifications_notificationchannel",
                    team.id,
                    id=f"'{new_uuid7().hex}'",
                    target="'spy@example.org'",
                ),
            ),
            Forgery(
                "delete a channel",
                "channel_is_never_deleted",
                "DELETE FROM notifications_notificationchannel WHERE id = %s",
                (gone.id,),
            ),
        ]
    )
    channels.retire_channel(team, administrator)
    again = channels.add_channel(written.project, "email", "team@example.org", administrator)
    assert not NotificationChannel.objects.get(pk=team.pk).enabled
    assert NotificationChannel.objects.get(pk=again.pk).enabled


def test_code_hosts_and_limits_change_only_with_their_entry(written: Organization) -> None:
    agent = written.agent
    with transaction.atomic():
        source = sources.add_source(written.project, "github", "web", actor="gatebook")
        sources.rotate_source_secret(source, 24, actor="gatebook")
        identity = agent_identities.add_identity(agent, "github", "deploy-bot", actor="gatebook")
        old = agent_identities.add_identity(agent, "github", "old-bot", actor="gatebook")
        removed_id = old.id.hex
        agent_identities.remove_identity(old, actor="gatebook")
        for value in (60, 90):
            rule_limits.set_limit(agent, "start_s", value, actor="gatebook")
    limit = StuckLimit.objects.get()
    update = "UPDATE hooks_codehostsource SET {} WHERE id = %s"
    changes = "source_changes_with_its_entry"
    assert_refused(
        [
            Forgery(
                "take the former secret",
                changes,
                update.format("secret_generation = 1"),
                (source.id,),
            ),
            Forgery(
                "accept the former for ever",
                changes,
                update.format("previous_until_us = 9000000000000000"),
                (source.id,),
            ),
            Forgery(
                "move a webhook",
                "source_keeps_its_project",
                update.format(f"project_id = '{written.other.id.hex}'"),
                (source.id,),
            ),
            Forgery(
                "add a webhook",
                "source_starts_with_its_entry",
                copy_row(
                    "hooks_codehostsource", source.id, id=f"'{new_uuid7().hex}'", name="'spy'"
                ),
            ),
            Forgery(
                "delete a webhook",
                "source_is_never_deleted",
                "DELETE FROM hooks_codehostsource WHERE id = %s",
                (source.id,),
            ),
            Forgery(
                "add an identity",
                "identity_is_added_with_its_entry",
                copy_row(
                    "hooks_agentidentity",
                    identity.id,
                    id=f"'{new_uuid7().hex}'",
                    value="'mallory'",
                ),
            ),
            Forgery(
                "take another login",
                "identity_never_changes",
                "UPDATE hooks_agentidentity SET value = 'mallory' WHERE id = %s",
                (identity.id,),
            ),
            Forgery(
                "list a removed identity again, as another person",
                "identity_is_added_with_its_entry",
                copy_row(
                    "hooks_agentidentity", identity.id, id=f"'{removed_id}'", value="'mallory'"
                ),
            ),
            Forgery(
                "remove an identity",
                "identity_is_removed_with_its_entry",
                "DELETE FROM hooks_agentidentity WHERE id = %s",
                (identity.id,),
            ),
            Forgery(
                "wait longer",
                "stuck_limit_changes_with_its_entry",
                "UPDATE monitoring_stucklimit SET value = 60 WHERE id = %s",
                (limit.id,),
            ),
            Forgery(
                "wait as long as usual",
                "stuck_limit_ends_with_its_entry",
                "DELETE FROM monitoring_stucklimit WHERE id = %s",
                (limit.id,),
            ),
            Forgery(
                "set another limit",
                "stuck_limit_is_set_with_its_entry",
                "INSERT INTO monitoring_stucklimit (project_id, agent_id, name, value)"
                " SELECT project_id, agent_id, 'orphan_s', value FROM monitoring_stucklimit"
                " WHERE id = %s",
                (limit.id,),
            ),
        ]
    )
    assert CodeHostSource.objects.get().secret_generation == 2
    assert AgentIdentity.objects.get().value == "deploy-bot"


def test_erasures_and_holds_move_only_with_their_entry(written: Organization) -> None:
    asker = written.members["administrator"].user
    other = User.objects.get(username="neighbour")
    with transaction.atomic():
        second = people.add_project_member(
            written.project, "second", "administrator", pages_people.PASSWORD
        ).user
    hold = erasure_requests.set_legal_hold(
        asker, written.project, reason="case 12", words=["Jane Roe"]
    )
    request = erasure_requests.request_erasure(
        asker, project=written.project, reason="ticket 88", words=["John Doe"]
    )
    running = erasure_requests.request_erasure(
        asker, project=written.project, reason="ticket 89", words=["Max Moe"]
    )
    for row in (request, running):
        erasure_requests.finish_count(row)
    shown = erasure_requests.digest_counts(running)
    erasure_requests.confirm_erasure(running.id, second, shown)
    ErasureRequest.objects.filter(pk=running.pk).update(state="running")
    confirmed = (
        "UPDATE erasure_erasurerequest SET state = 'confirmed', confirmed_by_id = %s,"
        " confirmed_at_us = 8 WHERE id = %s"
    )
    assert_refused(
        [
            Forgery(
                "confirm for a second person",
                "erasure_is_confirmed_with_its_entry",
                confirmed,
                (second.pk, request.id),
            ),
            Forgery(
                "request another erasure",
                "erasure_is_requested_with_its_entry",
                copy_row(
                    "erasure_erasurerequest",
                    request.id,
                    id=f"'{new_uuid7().hex}'",
                    state="'counting'",
                ),
            ),
            Forgery(
                "release a hold",
                "legal_hold_is_released_with_its_entry",
                f"UPDATE erasure_legalhold SET released_by_id = {other.pk}, released_at_us = 7"
                " WHERE id = %s",
                (hold.id,),
            ),
            Forgery(
                "empty a hold",
                "legal_hold_is_released_with_its_entry",
                "UPDATE erasure_legalhold SET words = '[]' WHERE id = %s",
                (hold.id,),
            ),
            Forgery(
                "hold more words with the same entry",
                "legal_hold_is_set_with_its_entry",
                copy_row("erasure_legalhold", hold.id, id="id + 100", words="'[\"x\"]'"),
            ),
            Forgery(
                "withdraw a request",
                "erasure_is_withdrawn_with_its_entry",
                "UPDATE erasure_erasurerequest SET state = 'withdrawn', words = '[]' WHERE id = %s",
                (request.id,),
            ),
            Forgery(
                "execute a request without erasing",
                "erasure_is_executed_with_its_entry",
                "UPDATE erasure_erasurerequest SET state = 'scrubbing', words = '[]',"
                " executed_at_us = 9, executed_position = requested_position WHERE id = %s",
                (running.id,),
            ),
            Forgery(
                "hold other words",
                "legal_hold_is_set_with_its_entry",
                "INSERT INTO erasure_legalhold (project_id, kind, words, reason, set_by_id,"
                " set_at_us, set_position) SELECT project_id, kind, '[\"x\"]', reason, set_by_id,"
                " set_at_us, set_position + 1 FROM erasure_legalhold WHERE id = %s",
                (hold.id,),
            ),
        ]
    )
    erasure_requests.release_legal_hold(hold.id, written.project, asker)
    erasure_requests.withdraw_erasure(request.id, asker)
    with transaction.atomic():
        position = erasure_runner.record_executed(running, "gatebook")
        running.refresh_from_db()
        erasure_requests.save_request(
            running, state="scrubbing", words=[], executed_at_us=9, executed_position=position
        )
    erasure_requests.save_request(running, state="done", scrubbed_at_us=10)
