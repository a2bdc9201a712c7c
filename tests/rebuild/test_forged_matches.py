"""Which effect a code host's event shows is compared with the entries about the match."""

import pytest
from django.db import connection, transaction

from accounts.people import ensure_pseudonym
from db.clock import now_us
from db.ids import new_uuid7
from hooks.code_hosts import agent_identities, host_events
from hooks.models import EventMatch
from journal import erasures
from journal.models import Entry
from tests.hooks.code_hosts.code_host import OTHER_SHA, CodeHost
from tests.hooks.code_hosts.conftest import host as host
from tests.rebuild.test_forged_rows import forge, run
from tests.rebuild.test_rebuilt_stories import list_differences

pytestmark = pytest.mark.django_db


def list_forged() -> set[tuple[str, str, str]]:
    """Return what the check names: (difference, effect, column)."""
    named = list_differences()
    assert {row["table"] for row in named} <= {"hooks_eventmatch"}, named
    return {
        (row["difference"], str(row["key"]["effect_id"]), row.get("column", "")) for row in named
    }


@pytest.mark.matrix_on_postgresql
def test_a_forged_match_is_named_and_restored(host: CodeHost) -> None:
    agent_identities.add_identity(
        host.organization.agent, "github", "Release-Bot", actor="gatebook"
    )
    shown = host.dispatch_push()
    event = host.push()
    person = ensure_pseudonym(host.organization.members["operator"].user)
    first, second = (
        host.dispatch_push(key, arguments={"ref": "main", "note": key}) for key in ("e-2", "e-3")
    )
    unclear = host.push(sha=OTHER_SHA)
    withdrawn = EventMatch.objects.get(event=unclear, effect=first)
    host_events.withdraw_event_match(
        withdrawn.id, host.project.id, actor=person, reason="It was the nightly job."
    )
    columns = ("event", "effect", "rule", "compared", "status", "position", "reason", "decided_by")
    before = list(EventMatch.objects.order_by("position").values_list(*columns))
    assert [row[4] for row in before].count("withdrawn") == 1
    assert list_forged() == set()
    confirmed = EventMatch.objects.get(event=event, effect=shown)
    forge(
        (
            "UPDATE hooks_eventmatch SET status = 'evidence', rule = 'push_head_sha',"
            f" compared = '[]', made_us = 7 WHERE id = {_quote(confirmed.id)}",
            "UPDATE hooks_eventmatch SET reason = 'never', decided_by = 'p_9', decided_us = 7"
            f" WHERE id = {_quote(withdrawn.id)}",
            f"DELETE FROM hooks_eventmatch WHERE effect_id = {_quote(second.id)}",
            "INSERT INTO hooks_eventmatch (id, project_id, event_id, effect_id, rule, compared,"
            " status, position, made_us, decided_by, reason) SELECT"
            f" {_quote(new_uuid7())}, project_id, event_id, {_quote(second.id)}, rule, compared,"
            f" status, position, made_us, '', '' FROM hooks_eventmatch WHERE id ="
            f" {_quote(confirmed.id)}",
        )
    )
    assert list_forged() == {
        *(
            ("changed", str(shown.id), column)
            for column in ("status", "rule", "compared", "made_us")
        ),
        *(("changed", str(first.id), column) for column in ("reason", "decided_by", "decided_us")),
        ("missing", str(second.id), ""),
        ("added", str(second.id), ""),
    }
    code, text = run()
    assert code == 0, text
    assert list_forged() == set()
    after = list(EventMatch.objects.order_by("position").values_list(*columns))
    # What was compared is in the body of a confirmation only.
    assert [row[:3] + row[4:] for row in after] == [row[:3] + row[4:] for row in before]
    assert EventMatch.objects.get(id=confirmed.id).compared == confirmed.compared
    for entry in Entry.objects.filter(kind__in=("effect.confirmed", "code_host.dismissed")):
        with transaction.atomic():
            erasures.erase_body(
                host.project.id, entry.position, reason="t-1", actor="p_1", now_us=now_us()
            )
    EventMatch.objects.filter(status="withdrawn").update(reason="[erased]")
    EventMatch.objects.filter(id=confirmed.id).update(compared="[]")
    assert list_forged() == set()


def _quote(identity: object) -> str:
    """Return an id as both databases write it."""
    return (
        f"'{identity}'" if connection.vendor == "postgresql" else f"'{identity}'".replace("-", "")
    )
