"""What code hosts delivered, and each event, is compared with the entry of the delivery."""

import json
from typing import Any, Final

import orjson
import pytest
from django.db import connection, transaction
from django.db.models import Model

from db.clock import now_us
from erasure.row_erasure import ErasureOrder, erase_matches
from erasure.row_scan import Subject, find_matches
from erasure.text_columns import TEXT_TABLES
from erasure.word_match import WordMatcher
from hooks.code_hosts import agent_identities, host_deliveries, host_events
from hooks.models import CodeHostDelivery, CodeHostEvent, EventMatch
from journal import entries, erasures
from journal.models import Entry
from tests.hooks.code_hosts.code_host import OTHER_SHA, CodeHost, pass_time
from tests.hooks.code_hosts.conftest import host as host
from tests.hooks.code_hosts.test_recorded_payloads import (
    CASES,
    GITLAB,
    PROJECT,
    build_pull_request,
    read_recorded,
)
from tests.matrices import keep_core
from tests.rebuild.test_forged_rows import forge, run
from tests.rebuild.test_misplaced_rows import copy_row
from tests.rebuild.test_rebuilt_stories import list_differences

pytestmark = pytest.mark.django_db
GRACE_S: Final = host_events.GRACE_S
DELIVERY: Final = "hooks_codehostdelivery"
EVENT: Final = "hooks_codehostevent"
MATCH: Final = "hooks_eventmatch"


def list_named(*tables: str) -> set[tuple[str, str, str]]:
    """Return what the check (of some tables) names: (difference, table, column)."""
    rows = list_differences(tables=tables)
    return {(row["difference"], row["table"], row.get("column", "")) for row in rows}


def read_rows() -> list[list[dict[str, Any]]]:
    """Return all rows of the tables of code hosts."""
    models: tuple[type[Model], ...] = (CodeHostDelivery, CodeHostEvent, EventMatch)
    rows: list[list[dict[str, Any]]] = [
        [dict(row) for row in model._base_manager.order_by("position", "pk").values()]
        for model in models
    ]
    for match in rows[2]:
        del match["id"], match["made_us"]
    return rows


def restore() -> None:
    """Restore all rows; afterwards nothing differs."""
    code, text = run()
    assert code == 0, text
    assert list_differences() == []


def deliver_to_gitlab(host: CodeHost) -> None:
    """Deliver one event of each kind as GitLab does, and one that Gatebook does not understand."""
    source = host.add_source("gitlab")
    person = {"user": {"username": "release-bot", "email": "Release-Bot@example.org"}}
    payloads = {name: {"project": PROJECT, **payload} for name, (payload, _) in GITLAB.items()}
    for event, payload in {**payloads, "Wiki Page Hook": person, "Note Hook": person}.items():
        answer = host.agent.raw(
            f"/hooks/gitlab/{source.id}",
            json.dumps(payload).encode(),
            X_Gitlab_Event=event,
            X_Gitlab_Token=host.secret(source),
            Idempotency_Key=f"k-{event.replace(' ', '-')}-{len(payload)}",
        )
        assert answer.status_code == 200, answer.text


@pytest.fixture
def bot(host: CodeHost) -> CodeHost:
    """The agent acts as release-bot."""
    agent_identities.add_identity(
        host.organization.agent, "github", "release-bot", actor="gatebook"
    )
    return host


@pytest.mark.parametrize("is_whole", keep_core([True, False], [False]))
def test_events_of_both_hosts_are_as_their_payloads_give_them(
    bot: CodeHost, is_whole: bool
) -> None:
    agent_identities.add_identity(
        bot.organization.agent, "gitlab", "release-bot@example.org", actor="gatebook"
    )
    recorded = list(read_recorded())
    if not is_whole:  # one delivery of each event and action
        kinds = {(event, payload.get("action")): (event, payload) for event, payload in recorded}
        recorded = list(kinds.values())
    for number, (event, payload) in enumerate(recorded):
        assert bot.deliver(event, payload, key=f"r-{number}").status_code == 200
    for event, payload, *_ in CASES.values():
        bot.deliver(event, payload)
    bot.deliver("ping", {"zen": "Keep it simple.", "hook_id": 10**40})
    # 7.0 and 7 are one value to the journal, 10**40 none of a column.
    bot.deliver("deployment", {"deployment": {"id": 7.0, "ref": "m\0ain"}, "action": "new\0"})
    bot.deliver("issue_comment", {"comment": {"id": 10**40}, "issue": {"number": 1e2}})
    deliver_to_gitlab(bot)
    assert CodeHostDelivery.objects.filter(understood=False).exists()
    assert CodeHostEvent.objects.filter(agent=bot.organization.agent).count() >= 2
    assert list_differences() == []


def play_story(bot: CodeHost, monkeypatch: pytest.MonkeyPatch) -> dict[str, CodeHostEvent]:
    """Return events of every status, by name."""
    opened = bot.push(ref="refs/heads/open")
    outside = bot.push(ref="refs/heads/outside")
    assert pass_time(outside, monkeypatch, GRACE_S) == "outside"
    unmatched = bot.push(ref="refs/heads/other", login="ada")
    assert pass_time(unmatched, monkeypatch, GRACE_S) == "unmatched"
    settled = bot.push()
    pass_time(settled, monkeypatch, GRACE_S)
    bot.dispatch_push()
    assert pass_time(settled, monkeypatch, 1_800) == "matched"
    again = bot.push(ref="refs/heads/again")
    pass_time(again, monkeypatch, GRACE_S)
    target = {"repository": "acme/shop", "ref": "again"}
    bot.dispatch_push("e-2", arguments={"ref": "again"}, target=target)
    assert pass_time(again, monkeypatch, 1_800) == "matched"
    host_events.withdraw_event_match(
        again.matches.get().id, bot.project.id, actor="p_1", reason="Another job did it."
    )
    for key in ("e-3", "e-4"):
        bot.dispatch_push(key, arguments={"ref": "main", "note": key})
    ambiguous = bot.push(sha=OTHER_SHA, after=OTHER_SHA)
    bot.deliver("ping", {"zen": "Keep it simple."})
    events = {
        "open": opened,
        "outside": outside,
        "unmatched": unmatched,
        "settled": settled,
        "again": again,
        "ambiguous": ambiguous,
    }
    for event in events.values():
        event.refresh_from_db()
    statuses = {name: event.status for name, event in events.items()}
    assert statuses == {**{name: name for name in events}, "settled": "matched", "again": "outside"}
    assert settled.settled_us is not None
    return events


def test_a_forged_column_is_named_and_restored(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = play_story(bot, monkeypatch)["settled"]
    assert list_differences() == []
    before = read_rows()
    ping = CodeHostDelivery.objects.get(event="ping")
    other = bot.add_source(name="other")
    of_delivery = {
        "source_id": _quote(other.id),
        "delivery_key": "'forged'",
        "event": "'push'",
        "action": "'closed'",
        "body_digest": f"'{'0' * 64}'",
        "understood": "FALSE",
        "position": "7",
        "received_us": "7",
    }
    forge((_update(DELIVERY, ping.id, of_delivery),))
    assert list_named() == {("changed", DELIVERY, column) for column in of_delivery}
    restore()
    assert read_rows() == before
    of_event = {
        "delivery_id": _quote(ping.id),
        "kind": "'check'",
        "action": "'deleted'",
        "repository": "'acme/other'",
        "ref": "'refs/heads/other'",
        "sha": f"'{OTHER_SHA}'",
        "sender": "'ada'",
        "agent_id": "NULL",
        "is_action": "FALSE",
        "facts": "'{}'",
        "position": "7",
        "occurred_us": "7",
        "received_us": "7",
        "status": "'unmatched'",
        "settle_by_us": "7",
        "finding_position": "NULL",
        "settled_us": "NULL",
    }
    forge((_update(EVENT, event.id, of_event),))
    assert list_named() == {("changed", EVENT, column) for column in of_event}
    restore()
    assert read_rows() == before
    for model, forged in ((CodeHostDelivery, of_delivery), (CodeHostEvent, of_event)):
        columns = {field.attname for field in model._meta.concrete_fields}
        assert columns == {"id", "project_id", *forged}, "a column that no test forges"


STATUSES: Final = {
    # The clock says whether an event without an effect is open still, and no entry does.
    "open": ({"open", "unmatched"}, "open"),
    "unmatched": ({"open", "unmatched"}, "open"),
    "outside": ({"outside"}, "outside"),
    "again": ({"outside"}, "outside"),
    "settled": ({"matched"}, "matched"),
    # The effects that fit may fit no more.
    "ambiguous": ({"ambiguous", "open", "unmatched"}, "ambiguous"),
}


@pytest.mark.matrix
def test_a_status_is_one_that_entries_allow(bot: CodeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    events = play_story(bot, monkeypatch)
    for name, (allowed, restored) in STATUSES.items():
        event = events[name]
        for status in ("open", "matched", "ambiguous", "outside", "unmatched"):
            finding = event.finding_position or (1 if status == "outside" else None)
            values = {"status": f"'{status}'", "finding_position": str(finding or "NULL")}
            forge((_update(EVENT, event.id, values),))
            named = list_named(EVENT)
            assert (("changed", EVENT, "status") in named) is (status not in allowed), (
                name,
                status,
            )
        forge((_update(EVENT, event.id, {"status": f"'{_choose_wrong(allowed)}'"}),))
        restore()
        event.refresh_from_db()
        assert event.status == restored, name


def _choose_wrong(allowed: set[str]) -> str:
    return "matched" if "matched" not in allowed else "unmatched"


def test_added_and_removed_rows_are_named_and_put_right(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = play_story(bot, monkeypatch)
    before = read_rows()
    delivery = CodeHostDelivery.objects.get(id=events["outside"].delivery_id)
    added = copy_row(CodeHostDelivery, delivery, delivery_key="forged")
    copy_row(CodeHostEvent, events["outside"], delivery=added, status="unmatched")
    assert list_named() == {("added", DELIVERY, ""), ("added", EVENT, "")}
    restore()
    assert read_rows() == before
    # An event goes together with its matches and its delivery, and all of them come back.
    forge(
        tuple(
            f"DELETE FROM {table} WHERE {column} IN"
            f" ({_quote(events['settled'].pk)}, {_quote(events['settled'].delivery_id)})"
            for table, column in ((MATCH, "event_id"), (EVENT, "id"), (DELIVERY, "id"))
        )
    )
    assert list_named() == {("missing", table, "") for table in (DELIVERY, EVENT, MATCH)}
    restore()
    assert read_rows() == before


def test_a_row_that_was_moved_to_another_project_is_moved_back(bot: CodeHost) -> None:
    event = bot.push()
    before = read_rows()
    other = _quote(bot.organization.other.id)
    forge((_update(EVENT, event.id, {"project_id": other}),))
    assert ("changed", EVENT, "project_id") in list_named()
    forge((_update(DELIVERY, event.delivery_id, {"project_id": other}),))
    assert ("changed", DELIVERY, "project_id") in list_named()
    restore()
    assert read_rows() == before


@pytest.mark.matrix
def test_what_an_erased_body_gave_is_unknown(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = play_story(bot, monkeypatch)
    ping = CodeHostDelivery.objects.get(event="ping")
    for entry in Entry.objects.filter(kind=host_deliveries.DELIVERED):
        with transaction.atomic():
            erasures.erase_body(
                bot.project.id, entry.position, reason="t-1", actor="p_1", now_us=now_us()
            )
    assert list_differences() == []
    event = events["outside"]
    # A payload gave these columns.
    forge((_update(EVENT, event.id, {"ref": "'refs/heads/x'", "sha": "''", "sender": "'ada'"}),))
    forge((_update(DELIVERY, ping.id, {"event": "'push'", "action": "'x'"}),))
    assert list_named() == set()
    # The facts of entries give these, or a digest of them.
    forge(
        (
            _update(EVENT, event.id, {"status": "'unmatched'", "agent_id": "NULL"}),
            _update(DELIVERY, ping.id, {"understood": "FALSE"}),
        )
    )
    assert list_named() == {
        ("changed", EVENT, "status"),
        ("changed", EVENT, "agent_id"),
        ("changed", DELIVERY, "understood"),
    }
    restore()
    forge((_update(DELIVERY, ping.id, {"delivery_key": "'x'", "body_digest": f"'{'0' * 64}'"}),))
    assert list_named() == {
        ("altered", DELIVERY, "delivery_key"),
        ("altered", DELIVERY, "body_digest"),
    }
    forge((f"DELETE FROM {EVENT} WHERE id = {_quote(event.id)}",))
    assert ("lost", EVENT, "") in list_named()
    assert run()[0] == 1


def test_words_that_an_erasure_removed_do_not_come_back(bot: CodeHost) -> None:
    bot.deliver("pull_request", build_pull_request("closed", merged=True))
    event = CodeHostEvent.objects.get()
    # Gatebook made this reference of two values, so that the payload has it nowhere.
    subject = Subject(bot.project.id, ("acme/shop#7",), WordMatcher(["acme/shop#7"]))
    with transaction.atomic():
        erased = 0
        for table in TEXT_TABLES:
            if table.label in ("hooks.CodeHostEvent", "journal.Body"):
                keys = list(table.model._base_manager.values_list("pk", flat=True))
                matches = find_matches(table, subject, keys)
                erase_matches(table, subject, matches, ErasureOrder("p_1", "t-1"))
                erased += len(matches)
    assert erased == 1
    event.refresh_from_db()
    assert "acme/shop#7" not in event.facts
    assert list_named() == {("changed", EVENT, "facts")}
    executed = entries.dump_sorted_json({"request": "1", "counts": {}})
    with transaction.atomic():
        entries.record_system_entry(
            bot.project.id,
            "erasure.executed",
            event_id="e-1",
            text=executed,
            received_us=now_us(),
            facts=executed,
        )
    assert list_named() == set()
    facts = {**orjson.loads(event.facts), "sha": OTHER_SHA}
    forge((_update(EVENT, event.id, {"facts": f"'{entries.dump_sorted_json(facts)}'"}),))
    assert list_named() == {("altered", EVENT, "facts")}


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let entries of deliveries lack what earlier versions did not record."""
    record = entries.record_system_entry

    def record_earlier(project: Any, kind: str, **values: Any) -> Any:
        if kind == host_deliveries.DELIVERED:
            facts, words = orjson.loads(values["facts"]), orjson.loads(values["text"])
            del words["body_digest"]
            values["text"] = entries.dump_sorted_json(words)
            values["facts"] = json.dumps({name: facts[name] for name in ("host", "source")})
        return record(project, kind, **values)

    monkeypatch.setattr(entries, "record_system_entry", record_earlier)


@pytest.mark.matrix
def test_entries_of_earlier_versions_give_what_their_payload_says(
    bot: CodeHost, earlier: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = play_story(bot, monkeypatch)["outside"]
    bot.deliver("star", {"action": "created"})
    assert list_differences() == []
    forge(
        (
            _update(EVENT, event.id, {"ref": "'refs/heads/x'", "agent_id": "NULL"}),
            _update(DELIVERY, event.delivery_id, {"delivery_key": "'x'"}),
        )
    )
    assert list_named() == {("changed", EVENT, "ref"), ("changed", DELIVERY, "delivery_key")}
    restore()
    forge((f"DELETE FROM {EVENT} WHERE id = {_quote(event.id)}",))
    assert list_named() == {("lost", EVENT, "")}
    with transaction.atomic():
        erasures.erase_body(
            bot.project.id, event.position, reason="t-1", actor="p_1", now_us=now_us()
        )
    assert list_named() == set()
    copy_row(CodeHostEvent, event, position=event.position + 1_000_000)
    assert list_named() == {("added", EVENT, "")}


def _update(table: str, key: Any, values: dict[str, str]) -> str:
    """Return the statement that sets columns of one row."""
    columns = ", ".join(f"{name} = {value}" for name, value in values.items())
    return f"UPDATE {table} SET {columns} WHERE id = {_quote(key)}"


def _quote(identity: object) -> str:
    """Return an id as both databases write it."""
    return (
        f"'{identity}'" if connection.vendor == "postgresql" else f"'{identity}'".replace("-", "")
    )
