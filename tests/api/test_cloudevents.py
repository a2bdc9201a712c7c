"""CloudEvents: structured, batched and binary, each recorded once by source and id."""

import base64
import json
from typing import Any

import pytest

from api.events import cloudevents
from journal.models import Body, Entry
from ledger.models import Effect
from sessions.models import Session
from tests.api.api_client import Caller, code

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"


def make_event(**fields: Any) -> dict[str, Any]:
    """Return a CloudEvent of a foreign type; `fields` replace, None removes."""
    event = {
        "specversion": "1.0",
        "id": "ce-1:call_1:dispatched",
        "source": "agent://lab/session/ce-1",
        "type": "dev.example.agent.effect.dispatched",
        "subject": "ce-1:call_1",
        "time": "2026-11-20T09:43:38.976765+00:00",
        "dataschema": "https://schemas.example/never-seen",
        "data": {"tool": "bash", "args": {"command": "git push\0"}},
        "sessionid": "ce-1",
    }
    return {name: value for name, value in (event | fields).items() if value is not None}


def make_fact(kind: str, data: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return make_event(type=f"dev.gatebook.{kind}", id=f"f:{kind}", data=data, **fields)


def send(agent: Caller, event: Any, media_type: str = STRUCTURED) -> Any:
    return agent.raw("/cloudevents", json.dumps(event).encode(), Content_Type=media_type)


def read_body(kind: str = cloudevents.RECEIVED_KIND) -> Any:
    return json.loads(Body.objects.get(entry__kind=kind).text)


def test_an_event_of_a_foreign_type_is_kept_as_it_was_sent(agent: Caller) -> None:
    event = make_event()
    answer = send(agent, event)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
    entry = Entry.objects.get(kind="cloudevent.received")
    assert read_body()["cloudevent"] == event
    assert (entry.lane, entry.claimed_source) == ("evidence", "agent://lab/session/ce-1")
    assert entry.occurred_us == 1_795_167_818_976_765
    assert Session.objects.get().key == "ce-1"
    assert not Effect.objects.exists()


def test_an_event_sent_again_is_recorded_once_and_changed_content_is_a_conflict(
    agent: Caller,
) -> None:
    assert send(agent, make_event()).json()["results"][0]["status"] == "created"
    assert send(agent, make_event()).json()["results"][0]["status"] == "duplicate"
    assert code(send(agent, make_event(data={"tool": "other"}))) == (409, "key_reuse")
    assert Entry.objects.filter(kind="integrity.conflict").count() == 1
    # The same id of another source is another event.
    assert send(agent, make_event(source="agent://lab/2")).status_code == 200
    assert Entry.objects.filter(kind="cloudevent.received").count() == 2


def test_types_of_gatebook_are_facts_of_that_kind(agent: Caller) -> None:
    plan = {"tool": "git.push", "arguments": {"ref": "main"}, "effect_key": "push-1"}
    facts = [
        make_fact("effect.planned", plan),
        make_fact("effect.dispatched", {"effect_key": "push-1", "attempt": 1}),
        make_fact("effect.acknowledged", {"effect_key": "push-1", "attempt": 1, "outcome": "ok"}),
    ]
    answer = send(agent, facts, BATCHED)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 3)
    effect = Effect.objects.get()
    assert (effect.tool, effect.state, effect.outcome) == ("git.push", "acknowledged", "ok")
    assert effect.lane == "evidence"
    assert read_body("effect.planned")["cloudevent"]["dataschema"].endswith("never-seen")


def test_a_batch_is_recorded_as_a_whole_or_not_at_all(agent: Caller) -> None:
    events = [make_event(), make_event(id="2", specversion="0.3"), make_event(id="3", time="noon")]
    answer = send(agent, events, BATCHED)
    assert code(answer) == (422, "batch_refused")
    results = answer.json()["results"]
    assert [result["status"] for result in results] == ["created", "invalid", "invalid"]
    assert [result.get("pointer") for result in results] == [None, "/specversion", "/time"]
    assert not Entry.objects.filter(kind="cloudevent.received").exists()
    assert send(agent, [events[0], make_event(id="4")], BATCHED).json()["accepted"] == 2
    assert send(agent, [], BATCHED).status_code == 200


def binary(agent: Caller, body: bytes, content_type: str, **headers: str) -> Any:
    names = {
        "ce-specversion": "1.0",
        "ce-id": "ce-1:call_1",
        "ce-source": "agent://lab",
        "ce-type": "dev.example.x",
        "ce-sessionid": "ce-1",
        **{f"ce-{name}": value for name, value in headers.items()},
    }
    sent = {name: value for name, value in names.items() if value}
    return agent.client.post(
        "/cloudevents", content=body, headers={"Content-Type": content_type, **sent}
    )


def test_binary_mode_reads_headers_and_body(agent: Caller) -> None:
    answer = binary(
        agent, b'{"a":[1,2.5]}', "application/json", subject="Euro%20%E2%82%AC%20%F0%9F%98%80"
    )
    assert answer.status_code == 200, answer.text
    event = read_body()["cloudevent"]
    assert event["subject"] == "Euro € \U0001f600"
    assert event["data"] == {"a": [1, 2.5]}
    assert event["datacontenttype"] == "application/json"


@pytest.mark.parametrize(
    ("value", "decoded"),
    [('"a \\"quoted\\" one"', 'a "quoted" one'), ("100%", "100%"), ("%41%42", "AB")],
)
def test_header_values_are_unquoted_and_percent_decoded(
    agent: Caller, value: str, decoded: str
) -> None:
    assert binary(agent, b"1", "application/json", subject=value).status_code == 200
    assert read_body()["cloudevent"]["subject"] == decoded


def test_a_header_in_utf8_is_read_as_such() -> None:
    headers = {"HTTP_CE_SUBJECT": "Grüße".encode().decode("latin-1")}
    assert cloudevents.read_binary_event(headers, b"") == {"subject": "Grüße"}


def test_a_binary_body_that_is_no_json_is_kept_as_base64(agent: Caller) -> None:
    body = b'{"tool": "bash"}\xff'
    assert binary(agent, body, "application/x-www-form-urlencoded").status_code == 200
    assert base64.b64decode(read_body()["cloudevent"]["data_base64"]) == body


def test_a_binary_event_may_have_no_body(agent: Caller) -> None:
    assert binary(agent, b"", "application/json").status_code == 200
    assert "data" not in read_body()["cloudevent"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'1,"x":2', {}, 422),
        (b"{", {}, 422),
        (b'{"a":1,"a":2}', {}, 422),
        (b'"\\ud800"', {}, 422),
        (b"\xff", {}, 422),
        (b"1", {"subject": "%FF"}, 422),
        (b"1", {"id": ""}, 422),
        (b"1", {"specversion": "2.0"}, 422),
        (b"1", {"datacontenttype": "text/plain"}, 422),
    ],
)
def test_a_binary_event_that_is_not_valid_is_refused(
    agent: Caller, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert code(binary(agent, body, "application/json", **headers))[0] == status
    assert not Entry.objects.filter(kind="cloudevent.received").exists()


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"id": None}, "/id"),
        ({"id": ""}, "/id"),
        ({"id": 5}, "/id"),
        ({"source": "a\nb"}, "/source"),
        ({"type": None}, "/type"),
        ({"specversion": "1"}, "/specversion"),
        ({"time": "2026-13-01T00:00:00Z"}, "/time"),
        ({"time": "1969-12-31T23:59:59Z"}, "/time"),
        ({"time": 5}, "/time"),
        ({"Upper": "x"}, "/Upper"),
        ({"nested": {"a": 1}}, "/nested"),
        ({"data_base64": "AA=="}, "/data"),
        ({"data_base64": "A", "data": None}, "/data_base64"),
        ({"data_base64": 5, "data": None}, "/data_base64"),
        ({"subject": 5}, "/subject"),
        ({"type": "dev.gatebook.effect.planned", "data": "text"}, "/data"),
        ({"type": "dev.gatebook.effect.planned", "data": {"id": "x"}}, "/data/id"),
        ({"type": "dev.gatebook.effect.planned", "data": {"effect_key": "e"}}, None),
        ({"type": "dev.gatebook.Effect", "data": {}}, "/kind"),
    ],
)
def test_an_event_that_is_not_valid_is_refused_with_its_pointer(
    agent: Caller, changed: dict[str, Any], pointer: str | None
) -> None:
    answer = send(agent, make_event(**changed))
    assert answer.status_code == 422, answer.text
    assert pointer is None or answer.json()["pointer"] == pointer
    assert not Effect.objects.exists()


def test_null_attributes_are_as_if_not_sent(agent: Caller) -> None:
    event = make_event() | {"subject": None, "time": None, "data": None}
    assert send(agent, event).status_code == 200
    stored = read_body()["cloudevent"]
    assert "subject" not in stored
    assert stored["data"] is None


def test_an_event_without_a_session_belongs_to_that_of_its_source(agent: Caller) -> None:
    long = "urn:" + "x" * 300
    for source in ("/sensors/a", long):
        assert send(agent, make_event(source=source, sessionid=None)).status_code == 200
    keys = set(Session.objects.values_list("key", flat=True))
    assert "/sensors/a" in keys
    assert {len(key) for key in keys} == {10, 67}


@pytest.mark.parametrize("media_type", ["application/json", "text/plain", ""])
def test_a_request_that_is_no_cloudevent_is_refused(agent: Caller, media_type: str) -> None:
    assert code(send(agent, make_event(), media_type)) == (415, "unsupported_media_type")


def test_an_event_that_is_too_large_is_refused(agent: Caller) -> None:
    large = make_event(data="x" * 262_144)
    assert code(send(agent, large)) == (413, "body_too_large")
    answer = send(agent, [large], BATCHED)
    assert answer.json()["results"][0]["status"] == "too_large"


def test_secrets_in_events_are_redacted(agent: Caller) -> None:
    secret = "ghp_" + "a1B2" * 9
    assert send(agent, make_event(data={"note": secret})).status_code == 200
    assert secret not in Body.objects.get(entry__kind="cloudevent.received").text
