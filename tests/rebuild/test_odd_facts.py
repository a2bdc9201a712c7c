"""An entry with facts or a body of wrong types is named, and ends the comparison of no table."""

from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from typing import Any, Final

import orjson
import pytest
from django.db import connection, transaction
from pytest_django import Settings

from db.triggers import suspend_triggers
from journal.entries import compute_commitment
from journal.models import Body, Entry
from rebuild import checking
from rebuild.readable_comparison import ODD
from tests.approvals.inbox_scenario import InboxScenario
from tests.rebuild.test_forged_controls import (
    act_outside_of_sessions,
    furnish_erasures,
    furnish_settings,
)
from tests.rebuild.test_forged_rows import forge, furnish, run

pytestmark = pytest.mark.django_db
JOURNAL: Final = ["journal_entry", "journal_body"]
DOCUMENTS: Final = ("no JSON", "[]", "7", "null")
VALUES: Final[tuple[Any, ...]] = (7, "x", [], {"a": 1}, None)
KINDS: Final = (
    *("admin.agent_created", "admin.channel_added", "admin.channel_changed"),
    *("admin.identity_added", "admin.member_added", "admin.password_given"),
    *("admin.password_reset", "admin.project_created", "admin.source_added"),
    *("admin.source_rotated", "admin.token_issued", "admin.tools_loaded", "artifact.recorded"),
    *("capacity.reported", "checkpoint.written", "control.fired", "decision.recorded"),
    *("effect.acknowledged", "effect.dispatched", "effect.failed", "effect.planned"),
    *("erasure.hold_set", "erasure.requested", "fact.observed", "gate.assigned"),
    *("gate.requested", "gate.ruled", "gate.voted", "handoff.written", "integrity.violation"),
    *("lease.acquired", "lease.released", "message.read", "message.sent", "policy.activated"),
    *("policy.loaded", "retention.activated", "retention.loaded", "session.started"),
    *("stuck.limit_changed", "task.changed", "task.created"),
)


@pytest.fixture
def furnished(inbox: InboxScenario, settings: Settings) -> InboxScenario:
    """A project with entries of most kinds."""
    settings.GATEBOOK_WEBHOOK_HOSTS = frozenset(("hooks.example.org",))
    furnish(inbox)
    furnish_settings(inbox)
    furnish_erasures(inbox)
    act_outside_of_sessions(inbox)
    return inbox


def compare_all() -> tuple[Counter[str], list[Any]]:
    """Return how many rows of each table are compared, and what cannot be read."""
    rows, unreadable = Counter[str](), list[Any]()
    for result in checking.check_batches(None):
        rows += result.rows
        unreadable += [row for row in result.differences if row.kind == "unreadable"]
    # Deliveries are compared only as far as an entry gives them.
    del rows["journal_outbox"]
    return rows, unreadable


def list_odd(text: str) -> Iterator[str]:
    """Yield what is no JSON object, then the object with an odd value of each field in turn."""
    yield from DOCUMENTS
    document, values = orjson.loads(text), cycle(VALUES)
    for name in document:
        yield orjson.dumps(document | {name: next(values)}).decode()


def forge_each(entry: Entry, body: Body | None) -> Iterator[str]:
    """Store odd facts, then odd bodies with fitting commitments, one after the other."""
    rows, bodies = Entry.objects.filter(pk=entry.pk), Body.objects.filter(entry=entry)
    for facts in list_odd(entry.facts):
        rows.update(facts=facts)
        yield facts
    rows.update(facts=entry.facts)
    for text in list_odd(body.text) if body is not None else ():
        bodies.update(text=text)
        rows.update(body_commit=compute_commitment(bytes(body.salt), text) if body else None)
        yield text


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_of_wrong_types_ends_no_comparison(furnished: InboxScenario, kind: str) -> None:
    assert set(Entry.objects.values_list("kind", flat=True)) == set(KINDS)
    rows, unreadable = compare_all()
    assert unreadable == []
    entry = Entry.objects.filter(kind=kind).latest("position")
    body = Body.objects.filter(entry=entry).first()
    with transaction.atomic(), suspend_triggers(connection, JOURNAL):
        for text in forge_each(entry, body):
            compared, unreadable = compare_all()
            named = [(row.table, dict(row.key)) for row in unreadable]
            assert named in ([], [("journal_entry", {"position": entry.position})]), text
            assert compared == rows, text


def test_the_rows_next_to_an_entry_of_wrong_types_are_compared(furnished: InboxScenario) -> None:
    """Of the same table too; and `rebuild` restores nothing that needs the entry."""
    loaded = Entry.objects.filter(kind="admin.tools_loaded").latest("position")
    started = Entry.objects.filter(kind="session.started").latest("position")
    with transaction.atomic(), suspend_triggers(connection, JOURNAL):
        Entry.objects.filter(pk=loaded.pk).update(facts="[]")
        Entry.objects.filter(pk=started.pk).update(facts='{"parent":7}')
    forge(
        (
            "UPDATE ledger_effect SET outcome = 'error' WHERE effect_key = 'done'",
            "UPDATE ledger_attempt SET outcome = 'error' WHERE outcome = 'ok'",
            "UPDATE agent_sessions_task SET state = 'failed' WHERE key = 'build'",
        )
    )
    code, text = run("--check")
    assert code == 1
    for entry, words in ((loaded, "its facts are no JSON object"), (started, ODD)):
        assert text.count(f"unreadable: journal_entry position={entry.position}: {words}") == 1
    for changed in ("ledger_effect", "ledger_attempt", "agent_sessions_task"):
        assert f"changed: {changed}" in text
    assert run()[0] == 1
    assert "changed: agent_sessions_task" not in run("--check")[1]
    assert "changed: ledger_effect" in run("--check")[1]
