"""Webhook requests: signature, id, size and form; what is stored and what is answered."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from accounts.models import Project
from db.clock import now_us
from hooks.code_hosts import host_deliveries, host_events, receive, sources
from hooks.code_hosts.host_deliveries import ReceivedDelivery
from hooks.models import CodeHostDelivery, CodeHostEvent, CodeHostSource
from journal.models import Entry, Outbox
from tests.api.api_client import code
from tests.hooks.code_hosts.code_host import (
    CodeHost,
    build_push,
    sign_for_gitlab,
)

pytestmark = pytest.mark.django_db


def stored_rows() -> tuple[int, int, int]:
    entries = Entry.objects.filter(kind__startswith="code_host.").count()
    return CodeHostDelivery.objects.count(), CodeHostEvent.objects.count(), entries


def test_a_signed_delivery_is_stored_with_its_payload(host: CodeHost) -> None:
    answer = host.deliver("push", build_push(), key="d-1")
    assert answer.status_code == 200
    body = answer.json()
    delivery = CodeHostDelivery.objects.get()
    assert body == {
        "delivery": f"d_{delivery.position}",
        "position": delivery.position,
        "event": "push",
        "understood": True,
    }
    entry = Entry.objects.get(position=delivery.position)
    assert (entry.kind, entry.lane, entry.subject) == (
        "code_host.delivered",
        "system",
        host.source.id,
    )
    assert json.loads(entry.body.text)["payload"]["ref"] == "refs/heads/main"
    assert "release-bot" not in entry.facts
    facts, event = json.loads(entry.facts), CodeHostEvent.objects.get()
    assert (facts["delivery"], facts["event"]) == (str(delivery.id), str(event.id))


def test_a_replay_changes_nothing_and_answers_the_same(host: CodeHost) -> None:
    first = host.deliver("push", build_push(), key="d-1")
    before = stored_rows()
    second = host.deliver("push", build_push(), key="d-1")
    assert (second.status_code, second.content) == (200, first.content)
    assert stored_rows() == before


def test_a_signed_body_of_github_is_one_delivery_under_any_id(host: CodeHost) -> None:
    """GitHub's signature covers neither the id nor the event."""
    first = host.deliver("push", build_push(), key="d-1")
    before = stored_rows()
    second = host.deliver("push", build_push(), key="d-2")
    assert (second.status_code, second.content) == (200, first.content)
    refused = host.deliver("deployment", build_push(), key="d-3")
    assert code(refused) == (409, "delivery_conflict")
    assert stored_rows() == before
    # At another webhook it is another delivery: there it is signed by another secret.
    other = host.add_source(name="other")
    path = f"/hooks/github/{other.id}"
    again = host.deliver("push", build_push(), key="d-1", path=path, secret=host.secret(other))
    assert again.status_code == 200
    assert stored_rows()[0] == 2


def test_two_requests_with_one_id_at_once_are_one_delivery(
    host: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    redact, payload = host_deliveries._redact_payload, build_push()
    others = [ReceivedDelivery("k-1", "push", json.dumps(payload).encode(), payload)]

    def redact_late(project: Any, payload: dict[str, Any]) -> dict[str, Any]:
        while others:  # the other request, which ends first
            host_deliveries.record_delivery(host.source, others.pop())
        return redact(project, payload)

    monkeypatch.setattr(host_deliveries, "_redact_payload", redact_late)
    assert host.deliver("push", payload, key="k-1").status_code == 200
    assert (CodeHostDelivery.objects.count(), CodeHostEvent.objects.count()) == (1, 1)


def test_one_id_stands_for_one_body(host: CodeHost) -> None:
    host.deliver("push", build_push(), key="d-1")
    before = stored_rows()
    refused = host.deliver("push", build_push(ref="refs/heads/other"), key="d-1")
    assert code(refused) == (409, "delivery_conflict")
    assert stored_rows() == before


@pytest.mark.parametrize(
    "signature",
    ["", "sha256=" + "0" * 64, "sha1=" + "0" * 40, "sha256=zz", "0" * 64],
)
def test_a_wrong_signature_is_refused_and_counted(host: CodeHost, signature: str) -> None:
    refused = host.deliver("push", build_push(), X_Hub_Signature_256=signature)
    assert code(refused) == (401, "signature_invalid")
    assert "/settings/code-hosts/" in refused.json()["detail"]
    assert stored_rows() == (0, 0, 0)
    source = CodeHostSource.objects.get()
    assert source.refused_count == 1
    assert source.last_refused_us is not None
    page = host.organization.client("viewer").get("/code-hosts/").content.decode()
    assert "request refused" in " ".join(page.split())


def test_the_signature_covers_every_byte(host: CodeHost) -> None:
    body = json.dumps(build_push()).encode()
    signed = hmac.new(host.secret().encode(), body, hashlib.sha256).hexdigest()
    refused = host.deliver("push", body + b" ", X_Hub_Signature_256=f"sha256={signed}")
    assert code(refused) == (401, "signature_invalid")


def test_the_common_address_finds_the_source_by_its_signature(host: CodeHost) -> None:
    other = host.add_source(name="other")
    answer = host.deliver("push", build_push(), path="/hooks/github", secret=host.secret(other))
    assert answer.status_code == 200
    assert CodeHostDelivery.objects.get().source == other
    refused = host.deliver("push", build_push(), path="/hooks/github", secret="whsec_wrong")
    assert code(refused) == (401, "signature_invalid")
    assert set(CodeHostSource.objects.values_list("refused_count", flat=True)) == {1}


def test_the_common_address_tries_a_bounded_number_of_sources(
    host: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_SOURCES_TRIED", 1)
    host.add_source(name="other")
    refused = host.deliver("push", build_push(), path="/hooks/github")
    assert code(refused) == (404, "not_found")
    assert host.deliver("push", build_push()).status_code == 200


def test_a_signature_of_one_source_opens_no_other(host: CodeHost) -> None:
    elsewhere = sources.add_source(
        Project.objects.create(name="elsewhere"), "github", "acme", actor="gatebook"
    )
    path = f"/hooks/github/{elsewhere.id}"
    refused = host.deliver("push", build_push(), path=path)
    assert code(refused) == (401, "signature_invalid")


def test_an_unknown_source_says_where_sources_are(host: CodeHost) -> None:
    path = f"/hooks/github/{host.project.id}"
    refused = host.deliver("push", build_push(), path=path)
    assert code(refused) == (404, "not_found")
    assert "/settings/code-hosts/" in refused.json()["detail"]
    assert code(host.deliver("push", {}, path=f"/hooks/gitlab/{host.source.id}"))[0] == 404


def test_a_disabled_source_stores_nothing(host: CodeHost) -> None:
    sources.switch_source(host.source, enabled=False, actor="gatebook")
    assert code(host.deliver("push", build_push())) == (403, "source_disabled")
    assert stored_rows() == (0, 0, 0)
    sources.switch_source(host.source, enabled=True, actor="gatebook")
    assert host.deliver("push", build_push()).status_code == 200


def test_a_rotated_secret_counts_until_the_overlap_ends(
    host: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = host.secret()
    host.source = sources.rotate_source_secret(host.source, 1, actor="gatebook")
    new = host.secret()
    assert old != new
    assert host.deliver("push", build_push(), secret=old).status_code == 200
    assert host.deliver("push", build_push(), secret=new).status_code == 200
    monkeypatch.setattr(receive, "now_us", lambda: now_us() + 3_601_000_000)
    assert host.deliver("push", build_push(), secret=old).status_code == 401
    assert host.deliver("push", build_push(), secret=new).status_code == 200


def test_a_rotation_without_overlap_ends_the_old_secret_at_once(host: CodeHost) -> None:
    old = host.secret()
    sources.rotate_source_secret(host.source, 0, actor="gatebook")
    assert host.deliver("push", build_push(), secret=old).status_code == 401


def test_a_body_of_20_mb_is_refused(host: CodeHost) -> None:
    body = json.dumps(build_push(padding="x" * 20_000_000)).encode()
    assert code(host.deliver("push", body)) == (413, "body_too_large")
    assert stored_rows() == (0, 0, 0)


def test_the_common_address_takes_less(host: CodeHost) -> None:
    body = json.dumps(build_push(padding="x" * 1_100_000)).encode()
    refused = host.deliver("push", body, path="/hooks/github")
    assert code(refused) == (413, "body_too_large")
    assert "webhook's own address" in refused.json()["detail"]
    assert host.deliver("push", body).status_code == 200


def test_a_large_delivery_is_stored_whole(host: CodeHost) -> None:
    commits = [{"id": f"{number:040x}", "message": "m" * 3_000} for number in range(2_000)]
    event = host.push(commits=commits)
    payload = json.loads(Entry.objects.get(position=event.position).body.text)["payload"]
    assert payload["commits"] == commits


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b"[]", 422, "not_an_object"),
        (b"{", 422, "json_invalid"),
        (b'{"a": "\xff"}', 422, "invalid_utf8"),
        (b"", 422, "body_empty"),
    ],
)
def test_an_unreadable_body_is_refused(
    host: CodeHost, body: bytes, status: int, problem: str
) -> None:
    assert host.deliver("push", body).status_code == status
    assert stored_rows() == (0, 0, 0)


def test_nul_and_lone_surrogates_in_a_payload(host: CodeHost) -> None:
    text = json.dumps(build_push(ref="refs/heads/a\x00b")).encode()
    assert host.deliver("push", text).status_code == 200
    event = CodeHostEvent.objects.get()
    assert event.ref == "refs/heads/ab"
    assert "\\u0000" in Entry.objects.get(position=event.position).body.text
    surrogate = text.replace(b"Release 1.4", b"\\ud800")
    assert host.deliver("push", surrogate).status_code == 422


def test_a_form_body_is_refused_with_the_setting(host: CodeHost) -> None:
    refused = host.deliver(
        "push", b"payload=%7B%7D", Content_Type="application/x-www-form-urlencoded"
    )
    assert code(refused) == (415, "unsupported_media_type")
    assert "application/json" in refused.json()["detail"]


def test_a_delivery_without_id_or_event_is_refused(host: CodeHost) -> None:
    assert code(host.deliver("push", build_push(), X_GitHub_Delivery=" ")) == (
        400,
        "delivery_invalid",
    )
    assert code(host.deliver("", build_push())) == (400, "delivery_invalid")


def test_an_unknown_event_is_stored_and_said_to_be_not_understood(host: CodeHost) -> None:
    answer = host.deliver("star", {"action": "created", "new_field": {"a": 1}})
    assert answer.json()["understood"] is False
    assert CodeHostEvent.objects.count() == 0
    delivery = CodeHostDelivery.objects.get()
    page = host.organization.client("viewer").get(f"/code-hosts/{delivery.id}/").content.decode()
    assert "does not understand events of this kind" in page


def test_a_ping_says_that_the_webhook_works(host: CodeHost) -> None:
    assert host.deliver("ping", {"zen": "Keep it logically awesome."}).json()["understood"]
    page = host.organization.client("viewer").get("/code-hosts/").content.decode()
    assert "the webhook works" in page


@pytest.mark.parametrize("event", ["push", "pull_request", "issue_comment", "deployment"])
@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"repository": 5, "sender": [], "comment": "x", "issue": None, "pull_request": 1},
        {"ref": {"a": 1}, "after": 7, "before": None, "forced": "yes", "number": -1},
        {"number": 2**70, "pull_request": {"number": 10**30, "html_url": "http://[", "head": 3}},
        {"repository": {"html_url": "http://[::1", "full_name": "é" * 500, "pushed_at": 10**17}},
    ],
)
def test_members_of_other_types_are_left_out(host: CodeHost, event: str, payload: Any) -> None:
    assert host.deliver(event, payload).status_code == 200
    delivery = CodeHostDelivery.objects.get()
    answer = host.organization.client("viewer").get(f"/code-hosts/{delivery.id}/")
    assert answer.status_code == 200


def test_gitlab_is_known_by_token_or_signature(host: CodeHost) -> None:
    source = host.add_source("gitlab")
    secret, path = host.secret(source), f"/hooks/gitlab/{source.id}"
    body = json.dumps({"object_kind": "push", "ref": "refs/heads/main", "after": "a" * 40}).encode()
    named = {"X_Gitlab_Event": "Push Hook"}
    by_token = host.agent.raw(
        path, body, X_Gitlab_Token=secret, X_Gitlab_Event_UUID="u-1", Idempotency_Key="k-1", **named
    )
    assert by_token.json()["understood"] is True
    signature = sign_for_gitlab(secret, "k-2", "1763900000", body)
    signed = {
        "webhook_id": "k-2",
        "webhook_timestamp": "1763900000",
        "webhook_signature": f"v1,AAAA {signature}",
        "Idempotency_Key": "k-2",
    }
    assert host.agent.raw(path, body, **signed, **named).status_code == 200
    replayed = host.agent.raw(path, body, **signed | {"Idempotency_Key": "k-9"}, **named)
    assert replayed.status_code == 200  # only webhook-id is signed: it is the same delivery
    assert CodeHostDelivery.objects.count() == 2
    changed = host.agent.raw(path, body + b" ", **signed, X_Gitlab_Token=secret, **named)
    assert code(changed) == (401, "signature_invalid")
    wrong = host.agent.raw(path, body, X_Gitlab_Token="whsec_no", Idempotency_Key="k-3", **named)
    assert code(wrong) == (401, "signature_invalid")
    assert CodeHostDelivery.objects.count() == 2


def test_secrets_in_a_payload_are_redacted(host: CodeHost) -> None:
    token = "ghp_" + "A1b2C3d4E5f6G7h8I9j0" + "K1l2M3n4O5p6Q7r8"
    event = host.push(head_commit={"id": "a" * 40, "message": f"use {token}"})
    assert token not in Entry.objects.get(position=event.position).body.text


def test_words_of_a_payload_are_only_in_the_body_which_can_be_erased(host: CodeHost) -> None:
    event = host.push(head_commit={"id": "a" * 40, "message": "call Ada on 555-0100"})
    assert "555-0100" in Entry.objects.get(position=event.position).body.text
    assert "555-0100" not in event.facts


def delete_rows(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM hooks_{table}")


def test_a_stored_delivery_never_changes(host: CodeHost) -> None:
    host.push()
    rows = CodeHostDelivery.objects.all()
    for change in (lambda: rows.update(event="star"), lambda: delete_rows("codehostdelivery")):
        refused = pytest.raises(DatabaseError, match="code_host_delivery_never_changes")
        with refused, transaction.atomic():
            change()


def test_a_failed_comparison_loses_no_delivery(
    host: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_event: object) -> str:
        raise RuntimeError

    monkeypatch.setattr(host_events, "compare_event", fail)
    event = host.push()
    assert event.status == "open"
    assert Outbox.objects.filter(topic=host_events.OUTBOX_TOPIC).count() == 1
