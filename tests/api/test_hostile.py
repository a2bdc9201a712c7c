"""Hostile bodies at every endpoint: one answer, the same on both databases, never a 5xx."""

import gzip
import json
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.events.parse import EVENT_SCHEMAS
from api.openapi.document import ENDPOINTS
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session, Task
from tests.api.api_client import Caller, code, new_key
from tests.api.fuzz_strict import HOSTILE
from tests.approvals.factories import gate_of
from tests.config.row_snapshot import Kept
from tests.matrices import count_examples, keep_core

COMMANDS = [
    endpoint.path
    for endpoint in ENDPOINTS
    if endpoint.method == "post" and endpoint.path not in ("/events", "/cloudevents")
]
BOUNDED = settings(
    max_examples=count_examples(12, 40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Answers to bodies of the corpus at an endpoint for one object. `invalid` are the readable ones: the
# corpus has no command, so their field `a` is unknown.
READABLE = {"nul in text", "bidi"}
ENCODING = {"utf-16", "utf-16 without mark", "utf-16 big endian", "utf-32", "byte order mark"}
EXPECTED: dict[str, tuple[int, str]] = {
    **dict.fromkeys(READABLE, (422, "invalid")),
    **dict.fromkeys(ENCODING, (415, "unsupported_charset")),
    **{
        name: (422, "lone_surrogate")
        for name in HOSTILE
        if "surrogate" in name and "utf-8" not in name
    },
    **{name: (422, "invalid_utf8") for name in HOSTILE if "utf-8" in name},
    **dict.fromkeys(
        ("NaN", "Infinity", "-Infinity", "1e400", "-1e400"), (422, "number_not_finite")
    ),
    **{name: (422, "number_too_long") for name in HOSTILE if "digits" in name},
    **{
        name: (422, "too_deep")
        for name in HOSTILE
        if "nested" in name or "levels" in name or "opened" in name
    },
    **{name: (422, "duplicate_key") for name in HOSTILE if "duplicate" in name},
    **dict.fromkeys(("2 MB string", "a million commas"), (413, "body_too_large")),
    **dict.fromkeys(("not an object", "a number"), (422, "not_an_object")),
}


@pytest.fixture
def ids(agent: Caller) -> dict[str, str]:
    """Return one object of each kind that paths name."""
    return _IDS.again(lambda: make_ids(agent))


_IDS = Kept[dict[str, str]](for_s=120)


def make_ids(agent: Caller) -> dict[str, str]:
    session = agent.session("s-1")
    task = agent.post(f"/sessions/{session['id']}/tasks", {"key": "t"}).json()
    effect = agent.plan()["id"]
    ids = {
        "session": session["id"],
        "task": task["id"],
        "effect": effect,
        "gate": str(gate_of(effect).id),
    }
    path = f"/sessions/{session['id']}"
    ids["decision"] = agent.post(f"{path}/decisions", {"key": "d", "choice": "left"}).json()["id"]
    ids["handoff"] = agent.post(f"{path}/handoffs").json()["id"]
    ids["lease"] = agent.post("/leases", {"resource": "r", "process": "p"}).json()["id"]
    ids["message"] = agent.post("/messages", {"to": "shared", "body": "x"}).json()["id"]
    return ids


def rows() -> tuple[Any, ...]:
    return (
        Entry.objects.count(),
        *(list(model.objects.order_by("id").values()) for model in (Session, Task, Effect)),
    )


@pytest.mark.once  # refused before any database query
@pytest.mark.parametrize("path", keep_core(COMMANDS, one_in=4))
def test_no_body_of_the_corpus_passes_an_endpoint_for_commands(
    agent: Caller, ids: dict[str, str], path: str
) -> None:
    before = rows()
    for name, raw in HOSTILE.items():
        if name == "empty":
            continue  # a command without fields may have no body at all
        answer = agent.raw(path.format(**ids), raw)
        assert code(answer) == EXPECTED.get(name, (422, "json_syntax")), name
        packed = agent.raw(path.format(**ids), gzip.compress(raw, 1), Content_Encoding="gzip")
        assert code(packed) == code(answer), name
    assert rows() == before


# Answers to the corpus as one item among others: only the item is refused, where the items can be
# separated.
def test_a_hostile_item_of_a_batch_fails_alone(agent: Caller) -> None:
    good = [{"id": f"g-{n}", "kind": "moon.risen", "session": "s"} for n in range(2)]
    lines = [json.dumps(item).encode() for item in good]
    whole_is_refused = {
        name
        for name in HOSTILE
        if EXPECTED.get(name, (0, ""))[1] in ("unsupported_charset", "invalid_utf8")
    }
    for name, raw in HOSTILE.items():
        if name == "empty" or b"\n" in raw or name in whole_is_refused:
            continue
        answer = agent.raw(
            "/events", b"\n".join([lines[0], raw, lines[1]]), Content_Type="application/x-ndjson"
        )
        assert answer.status_code == (207 if raw.strip() else 200), (name, answer.text)
        results = answer.json()["results"]
        assert [results[0]["status"], results[-1]["status"]] in (
            ["created"] * 2,
            ["duplicate"] * 2,
        ), name
        for result in results[1:-1]:
            assert result["status"] == ("too_large" if len(raw) > 262_144 else "invalid"), name
            wanted = EXPECTED.get(name, (422, "json_syntax"))[1]
            assert result["code"] == ("item_too_large" if wanted == "body_too_large" else wanted), (
                name
            )
    assert Entry.objects.filter(lane="evidence").count() == 2


@pytest.mark.parametrize("wrap", [b"%s", b"[%s]", b"%s\n"], ids=["whole", "array", "lines"])
def test_a_batch_of_the_corpus_is_answered(agent: Caller, wrap: bytes) -> None:
    lines = wrap == b"%s\n"
    for name, raw in HOSTILE.items():
        headers = {"Content_Type": "application/x-ndjson"} if lines else {}
        answer = agent.raw("/events", wrap.replace(b"%s", raw), **headers)
        assert answer.status_code in (200, 207, 400, 413, 415, 422), (name, answer.text)
        if answer.status_code == 200:
            assert answer.json() == {"accepted": 0, "results": []}, name
        elif answer.status_code == 207:
            assert answer.json()["accepted"] == 0
    assert Entry.objects.filter(lane="evidence").count() == 0


@pytest.mark.once  # refused before any database is asked
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Content_Type": "text/plain"}, (415, "unsupported_media_type")),
        ({"Content_Type": "application/x-www-form-urlencoded"}, (415, "unsupported_media_type")),
        ({"Content_Type": "multipart/form-data; boundary=x"}, (415, "unsupported_media_type")),
        ({"Content_Type": "application/json; charset=utf-16"}, (415, "unsupported_charset")),
        ({"Content_Type": ""}, (415, "unsupported_media_type")),
        ({"Content_Encoding": "br"}, (415, "unsupported_encoding")),
        ({"Content_Encoding": "deflate"}, (415, "unsupported_encoding")),
        ({"Content_Encoding": "gzip, gzip"}, (415, "unsupported_encoding")),
        ({"Content_Encoding": "gzip"}, (422, "gzip_invalid")),
        ({"Content_Length": "99"}, (400, "body_incomplete")),
        ({"Content_Length": "-1"}, (400, "content_length_invalid")),
        ({"Content_Length": "9" * 30}, (400, "content_length_invalid")),
        ({"Content_Length": "99999999"}, (413, "body_too_large")),
        ({"Transfer_Encoding": "chunked"}, (411, "length_required")),
    ],
    ids=str,
)
def test_framing_and_encoding_are_read_strictly(
    agent: Caller, ids: dict[str, str], headers: dict[str, str], expected: tuple[int, str]
) -> None:
    for path in (*COMMANDS, "/events"):
        assert code(agent.raw(path.format(**ids), b'{"key": "x"}', **headers)) == expected, path


def test_a_packed_bomb_is_refused_while_it_is_unpacked(agent: Caller, ids: dict[str, str]) -> None:
    bomb = gzip.compress(b" " * 100_000_000, 9)
    assert len(bomb) < 262_144
    for path in (*COMMANDS, "/events"):
        answer = agent.raw(path.format(**ids), bomb, Content_Encoding="gzip")
        assert code(answer) == (413, "body_too_large")


BASES: dict[str, dict[str, Any]] = {
    "/sessions": {"key": "s-9"},
    "/sessions/{session}/end": {"status": "failed"},
    "/sessions/{session}/change": {"cursor": "c"},
    "/sessions/{session}/merged": {"into": "s-8"},
    "/sessions/{session}/checkpoints": {"summary": "x"},
    "/sessions/{session}/decisions": {"key": "d-9", "choice": "right"},
    "/sessions/{session}/handoffs": {"in_progress": ["x"]},
    "/sessions/{session}/facts": {"name": "n", "value": 1, "source": "s"},
    "/decisions/{decision}/conclude": {"status": "done", "outcome": "x"},
    "/handoffs/{handoff}/accept": {},
    "/messages": {"to": "shared", "body": "x"},
    "/messages/{message}/read": {},
    "/capacity": {"queue": 1},
    "/leases": {"resource": "r-9", "process": "p"},
    "/leases/{lease}/renew": {"epoch": 1},
    "/leases/{lease}/release": {"epoch": 1},
    "/heartbeats": {"heartbeats": [{"lease": str(UUID(int=1)), "epoch": 1}]},
    "/claims": {"process": "p"},
    "/effects/{effect}/probe": {"attempt": 1, "result": "hit"},
    "/sessions/{session}/tasks": {"key": "t-9"},
    "/tasks/{task}/change": {"state": "running"},
    "/tasks/{task}/done": {},
    "/tasks/{task}/items": {"items": [{"key": "i", "state": "done"}]},
    "/effects": {"session": "s-1", "effect_key": "e-9", "tool": "t"},
    "/effects/{effect}/dispatch": {"process": "p", "arguments": {"ref": "main"}},
    "/effects/{effect}/acknowledge": {"attempt": 1, "outcome": "ok"},
    "/effects/{effect}/fail": {"attempt": 1, "reason": "error"},
    "/effects/{effect}/compensate": {"effect_key": "undo", "tool": "t"},
    "/effects/{effect}/supersede": {},
    "/gates/wait": {"gates": {}},
    "/gates/{gate}/cancel": {},
    "/artifacts": {
        "session": "s-1",
        "type": "t",
        "sha256": "0" * 64,
        "size": 1,
        "media_type": "text/plain",
    },
}


# --- random bodies --------------------------------------------------------------------------------------------------

TEXT = st.text(max_size=20) | st.sampled_from(
    ["\0", "s-1", "e-1", "effect.planned", "\u202e", "x" * 301, "../..", "%s"]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
NAMES = sorted(
    {field.name for shape in EVENT_SCHEMAS.values() for field in msgspec.structs.fields(shape)}
)
ENVELOPE = {
    "id",
    "kind",
    "session",
    "occurred_us",
    "effect_key",
    "attempt",
    "source",
    "producer_seq",
    "lease_epoch",
}


@BOUNDED
@given(
    path=st.sampled_from(["/sessions", "/effects", "/events/receipt"]),
    query=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "limit",
                    "after",
                    "state",
                    "key",
                    "id",
                    "session",
                    "tool",
                    "agent__name",
                    "labels__x__regex",
                    "_connector",
                ]
            )
            | TEXT,
            TEXT
            | st.integers().map(str)
            | st.sampled_from(["^(a+)+$", "planned", "running", "%00", "1e9", "-1"]),
        ),
        max_size=4,
    ),
)
def test_any_question_is_answered_by_every_list(
    agent: Caller, path: str, query: list[tuple[str, str]]
) -> None:
    answer = agent.client.get(f"{path}?{urlencode(query)}")
    assert answer.status_code in (200, 400, 404, 422), (path, query, answer.text)


@BOUNDED
@given(data=st.data())
def test_any_json_is_answered_by_every_command(agent: Caller, data: st.DataObject) -> None:
    agent.session("s-1")
    ids = {
        "session": agent.session("s-1")["id"],
        "effect": agent.plan("e-1")["id"],
        "gate": new_key(),
    }
    ids |= dict.fromkeys(("decision", "handoff", "message", "lease"), new_key())
    task = agent.post(f"/sessions/{ids['session']}/tasks", {"key": "t"}).json()["id"]
    path = data.draw(st.sampled_from(COMMANDS))
    fields = data.draw(
        st.dictionaries(st.sampled_from([*NAMES, "key", "session", "process"]), JSON, max_size=5)
    )
    body = {**data.draw(st.sampled_from([{}, BASES[path]])), **fields}
    answer = agent.post(path.format(**ids, task=task), body, key=new_key())
    assert answer.status_code in (200, 201, 202, 404, 409, 413, 422), (path, body, answer.text)


@BOUNDED
@given(
    items=st.lists(
        st.dictionaries(
            st.sampled_from([*NAMES, *sorted(ENVELOPE), "x"]), JSON, max_size=6
        ).flatmap(
            lambda fields: st.fixed_dictionaries(
                {
                    "id": st.uuids().map(str),
                    "kind": st.sampled_from([*EVENT_SCHEMAS, "moon.risen"]),
                    "session": st.sampled_from(["s-1", "s-2"]),
                    "effect_key": st.sampled_from(["e-1", "e-2"]),
                    "task": st.sampled_from(["t-1", "t-2"]),
                    "tool": st.just("t"),
                }
            ).map(lambda base: {**base, **fields})
        ),
        max_size=6,
    )
)
def test_any_json_is_answered_by_the_evidence_lane(
    agent: Caller, items: list[dict[str, Any]]
) -> None:
    answer = agent.report(items)
    assert answer.status_code in (200, 207), (items, answer.text)
    for result in answer.json()["results"]:
        assert result["status"] in ("created", "duplicate", "conflict", "invalid"), result
