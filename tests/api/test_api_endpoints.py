"""Rules of every endpoint: authentication, methods, form of refusals and project isolation."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client

from accounts import tokens
from accounts.models import AgentToken
from api import urls
from api.openapi.document import ENDPOINTS
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Artifact, Session, Task
from tests.api.api_client import Caller, code
from tests.approvals.factories import gate_of
from tests.config.row_snapshot import Kept

pytestmark = pytest.mark.once

NO_TOKEN_NEEDED = {"openapi.json"}


def list_operations() -> Iterator[tuple[str, str]]:
    """Yield every (method, path) of the URL table, with ids in braces."""
    described = {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    for pattern in urls.urlpatterns:
        path = "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", str(pattern.pattern))
        methods = [method for method, described_path in described if described_path == path]
        if path == "/openapi.json":
            methods = ["get"]
        assert methods, f"{path} is not described"
        for method in sorted(methods):
            yield method, path


OPERATIONS = list(list_operations())
BODIES: dict[str, Any] = {
    "/sessions": {"key": "s-9"},
    "/sessions/{session}/end": {"status": "failed"},
    "/sessions/{session}/tasks": {"key": "t-9"},
    "/tasks/{task}/change": {"state": "running"},
    "/tasks/{task}/items": {"items": [{"key": "i", "state": "done"}]},
    "/effects": {"session": "s-1", "effect_key": "e-9", "tool": "t"},
    "/effects/{effect}/dispatch": {"process": "p", "arguments": {"ref": "main"}},
    "/effects/{effect}/acknowledge": {"attempt": 1, "outcome": "ok"},
    "/effects/{effect}/fail": {"attempt": 1, "reason": "error"},
    "/effects/{effect}/compensate": {"effect_key": "undo", "tool": "t"},
    "/artifacts": {
        "session": "s-1",
        "type": "t",
        "sha256": "0" * 64,
        "size": 1,
        "media_type": "text/plain",
    },
    "/gates/wait": {"gates": {"{gate}": 0}},
    "/sessions/{session}/merged": {"into": "s-other"},
    "/sessions/{session}/change": {"cursor": "7"},
    "/sessions/{session}/checkpoints": {"summary": "half-way"},
    "/sessions/{session}/decisions": {"key": "d-9", "choice": "squash"},
    "/sessions/{session}/handoffs": {"in_progress": ["it"]},
    "/sessions/{session}/facts": {"name": "head", "value": "a", "source": "git"},
    "/decisions/{decision}/conclude": {"status": "done", "outcome": "squashed"},
    "/effects/{effect}/probe": {"attempt": 1, "result": "miss"},
    "/leases": {"resource": "web@other", "process": "p"},
    "/leases/{lease}/renew": {"epoch": 1},
    "/leases/{lease}/release": {"epoch": 1},
    "/heartbeats": {"heartbeats": [{"lease": "{lease}", "epoch": 1}]},
    "/claims": {"process": "p"},
    "/capacity": {"queue": 1},
    "/messages": {"to": "shared", "body": "hold on"},
}
# Their answers contain the current time, because permitted actions change with the clock.
BYTES = "/artifacts/{artifact}/bytes"
OF_THE_MOMENT = {"/search", "/sessions/{session}/resume", "/effects/{effect}/verdict"}


@pytest.fixture
def ids(agent: Caller) -> dict[str, str]:
    """Return the id of one stored object of each kind in the project of `agent`."""
    return _IDS.again(lambda: make_ids(agent))


_IDS = Kept[dict[str, str]](for_s=120)


def make_ids(agent: Caller) -> dict[str, str]:
    session = agent.session("s-1")
    task = agent.post(f"/sessions/{session['id']}/tasks", {"key": "t"}).json()
    artifact = agent.post("/artifacts", BODIES["/artifacts"]).json()
    id_of = {
        "session": session["id"],
        "task": task["id"],
        "effect": agent.plan()["id"],
        "artifact": artifact["id"],
    }
    for kind in ("checkpoint", "decision", "handoff"):
        path = f"/sessions/{session['id']}/{kind}s"
        id_of[kind] = agent.post(path, BODIES[f"/sessions/{{session}}/{kind}s"]).json()["id"]
    id_of["lease"] = agent.post("/leases", {"resource": "web@main", "process": "p"}).json()["id"]
    id_of["message"] = agent.post("/messages", BODIES["/messages"]).json()["id"]
    return id_of | {"gate": str(gate_of(id_of["effect"]).id)}


def send(caller: Caller, method: str, path: str, ids: dict[str, str], **headers: str) -> Any:
    address = path.format(**ids)
    if method == "get":
        return caller.client.get(address, headers=headers)
    if method == "put":
        return caller.client.put(address, content=b"x", headers=headers)
    if path == "/events":
        return caller.client.post(address, json=[], headers=headers)
    body = json.loads(
        json.dumps(BODIES.get(path, {}))
        .replace("{gate}", ids["gate"])
        .replace("{lease}", ids["lease"])
    )
    return caller.post(address, body, headers=headers)


def test_the_description_and_the_url_table_name_the_same_endpoints() -> None:
    assert {path for _, path in OPERATIONS} - {"/openapi.json"} == {
        endpoint.path for endpoint in ENDPOINTS
    }


def test_only_a_valid_token_opens_an_endpoint(
    agent: Caller, ids: dict[str, str], application: Any
) -> None:
    for method, path in OPERATIONS:
        if path.lstrip("/") in NO_TOKEN_NEEDED:
            assert send(Caller(None, app=application), method, path, ids).status_code == 200
            continue
        before = Entry.objects.count()
        wrong = agent.token[:-1] + ("A" if agent.token[-1] != "A" else "B")
        for header in (
            None,
            "",
            "Bearer",
            f"Bearer {wrong}",
            f"Basic {agent.token}",
            agent.token,
            f"Bearer {agent.token} x",
        ):
            caller = Caller(None, app=application)
            answer = send(
                caller, method, path, ids, **({} if header is None else {"Authorization": header})
            )
            assert code(answer) == (401, "unauthorized"), (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["cache-control"] == "no-store"
        assert Entry.objects.count() == before


WITH_TOKENS = [
    operation for operation in OPERATIONS if operation[1].lstrip("/") not in NO_TOKEN_NEEDED
]


def test_a_token_in_the_url_is_400_and_a_cookie_is_ignored(
    agent: Caller, ids: dict[str, str], application: Any
) -> None:
    browser = Client()
    # Without a password, because hashing is slow.
    browser.force_login(User.objects.create(username="root", is_superuser=True))
    cookie = f"gatebook={browser.cookies['gatebook'].value}"
    for method, path in WITH_TOKENS:
        for query in (
            "token=x",
            f"access_token={agent.token}",
            f"q={agent.token}",
            f"a=1&{agent.token}",
        ):
            answer = send(agent, method, f"{path}?{query}", ids)
            assert code(answer) == (400, "token_in_query"), (method, path)
            assert agent.token not in answer.text
        assert code(send(Caller(None, app=application), method, path, ids, Cookie=cookie)) == (
            401,
            "unauthorized",
        )


def test_a_revoked_or_expired_token_is_out_at_once(
    agent: Caller, call: Callable[..., Caller]
) -> None:
    assert agent.get("/limits").status_code == 200
    other = call("tester")
    token = AgentToken.objects.get(public_id=agent.token.split("_")[1])
    tokens.revoke_agent_token(token, actor="tests")
    assert code(agent.get("/limits")) == (401, "unauthorized")
    assert code(agent.post("/sessions", {"key": "s"})) == (401, "unauthorized")
    assert other.get("/limits").status_code == 200
    brief = call("tester", expires_in=timedelta(hours=1))
    assert brief.get("/limits").status_code == 200
    assert code(call("tester", expires_in=timedelta()).get("/limits")) == (401, "unauthorized")
    assert Session.objects.count() == 0


WITH_AN_ID = [operation for operation in OPERATIONS if "{" in operation[1]]


@pytest.mark.parametrize(("method", "path"), WITH_AN_ID)
def test_an_object_of_another_project_is_not_found(
    agent: Caller, ids: dict[str, str], stranger: Caller, method: str, path: str
) -> None:
    def state() -> list[Any]:
        return [
            list(model.objects.order_by("id").values())
            for model in (Session, Task, Effect, Artifact)
        ]

    before, entries = state(), Entry.objects.count()
    foreign = send(stranger, method, path, ids)
    assert code(foreign) == (404, "not_found")
    absent = send(stranger, method, path, {name: str(uuid4()) for name in ids})
    assert absent.json() == foreign.json()  # a foreign object and a missing one look equal
    assert (state(), Entry.objects.count()) == (before, entries)
    own = send(agent, method, path, ids)
    assert own.status_code in (200, 201, 409, 422) or own.json()["code"] == "not_stored", own.text


def test_the_objects_of_another_project_cannot_be_named_either(
    agent: Caller, stranger: Caller, ids: dict[str, str]
) -> None:
    stranger.session("s-2")
    effect = {"session": "s-2", "effect_key": "e", "tool": "t"}
    for refused in (
        stranger.post("/effects", {**effect, "session": ids["session"]}),
        stranger.post("/effects", {**effect, "parent_effect": ids["effect"]}),
        stranger.post("/artifacts", {**BODIES["/artifacts"], "session": ids["session"]}),
        stranger.post(
            "/artifacts", {**BODIES["/artifacts"], "session": "s-2", "effect": ids["effect"]}
        ),
    ):
        assert code(refused) == (404, "not_found")
    assert code(stranger.post("/effects", {**effect, "task": ids["task"]})) == (422, "task_unknown")
    assert code(stranger.post("/sessions", {"key": "s-3", "parent": ids["session"]})) == (
        422,
        "parent_unknown",
    )
    for name in ("sessions", "effects"):
        items = stranger.get(f"/{name}").json()["items"]
        assert not {item["id"] for item in items} & set(ids.values())
    entry = Entry.objects.get(kind="effect.planned")
    assert code(stranger.get("/events/receipt", id=entry.event_id, source="tester")) == (
        404,
        "not_found",
    )
    # A fact with the id of a foreign session makes an own session with that id as its key.
    fact = {
        "id": "x",
        "kind": "effect.acknowledged",
        "session": ids["session"],
        "effect_key": "e-1",
        "outcome": "ok",
    }
    assert stranger.report([fact]).status_code == 200
    assert Effect.objects.get(id=ids["effect"]).state == "planned"
    assert Session.objects.get(key=ids["session"]).project.name == "elsewhere"
    # Keys do not conflict either: each project has its own.
    assert stranger.session("s-1")["id"] != ids["session"]


PATHS = sorted({path for _, path in OPERATIONS})


def test_other_methods_are_405_and_list_the_allowed_ones(
    agent: Caller, ids: dict[str, str]
) -> None:
    for path in PATHS:
        allowed = {method for method, described_path in OPERATIONS if described_path == path}
        for method in ("get", "post", "put", "patch", "delete", "options"):
            if method in allowed:
                continue
            answer = agent.client.request(method, path.format(**ids))
            assert code(answer) == (405, "method_not_allowed"), (method, path)
            assert {name.strip().lower() for name in answer.headers["allow"].split(",")} - {
                "head"
            } == allowed


@pytest.mark.parametrize(
    "path", ["", "/", "/session", "/sessions/", "/sessions/7", "/effects/x/dispatch", "/v2", "/%00"]
)
def test_a_missing_object_is_a_problem_too(agent: Caller, path: str) -> None:
    assert code(agent.client.get(path)) == (404, "not_found")


UNCHANGED = [
    operation
    for operation in OPERATIONS
    if operation[0] == "get" and not (OF_THE_MOMENT | {BYTES}) & {operation[1]}
]


def test_an_unchanged_object_is_304(agent: Caller, ids: dict[str, str]) -> None:
    for _method, path in UNCHANGED:
        address = path.format(**ids)
        query = (
            {"id": Entry.objects.get(kind="effect.planned").event_id}
            if path.endswith("receipt")
            else {}
        )
        query |= {"name": "git.push"} if path == "/tools" else {}
        first = agent.get(address, **query)
        if path.lstrip("/") in NO_TOKEN_NEEDED:
            continue
        if path.endswith("/result"):  # the effect has not run
            assert first.status_code == 409
            continue
        tag = first.headers["etag"]
        for sent in (tag, f"W/{tag}", f'"other", {tag}'):
            again = agent.client.get(address, params=query, headers={"If-None-Match": sent})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag), (
                path
            )
        assert (
            agent.client.get(
                address, params=query, headers={"If-None-Match": '"other"'}
            ).status_code
            == 200
        )


def test_a_read_changes_with_what_it_shows(agent: Caller, ids: dict[str, str]) -> None:
    tag = agent.get(f"/effects/{ids['effect']}").headers["etag"]
    effect = agent.get(f"/effects/{ids['effect']}").json()
    agent.dispatch(effect)
    again = agent.client.get(f"/effects/{ids['effect']}", headers={"If-None-Match": tag})
    assert (again.status_code, again.json()["state"]) == (200, "dispatched")


def test_limits_are_shown(agent: Caller) -> None:
    assert agent.get("/limits").json() == {
        "batch_items": 1000,
        "batch_bytes": 4 * 1024 * 1024,
        "item_bytes": 262_144,
        "artifact_bytes": 64 * 1024 * 1024,
        "checkpoint_bytes": 64 * 1024,
        "depth": 32,
        "idempotency_key_characters": 64,
    }


def test_a_command_is_a_quarter_of_a_mebibyte(agent: Caller) -> None:
    agent.session("s-1")
    body = {"session": "s-1", "effect_key": "e", "tool": "t", "arguments": {"text": "x" * 262_144}}
    refused = agent.post("/effects", body)
    assert code(refused) == (413, "body_too_large")
    assert "262144" in refused.json()["detail"]
    assert agent.post("/effects", {**body, "arguments": {"text": "x" * 262_000}}).status_code == 201


def test_thirty_two_levels_are_read_and_no_more(agent: Caller) -> None:
    agent.session("s-1")

    def nested(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    body = {"session": "s-1", "effect_key": "e", "tool": "t"}
    assert agent.post("/effects", {**body, "arguments": nested(31)}).status_code == 201
    assert code(agent.post("/effects", {**body, "arguments": nested(32)})) == (422, "too_deep")


def test_answers_to_agents_carry_no_cookie_and_are_not_cached(
    agent: Caller, ids: dict[str, str]
) -> None:
    for method, path in OPERATIONS:
        if path == "/openapi.json":
            continue
        answer = send(agent, method, path, ids)
        assert "set-cookie" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"


def test_the_last_use_of_a_token_is_recorded_by_the_minute(agent: Caller) -> None:
    agent.get("/limits")
    first = AgentToken.objects.get(public_id=agent.token.split("_")[1]).used_at
    agent.get("/limits")
    assert first is not None
    assert AgentToken.objects.get(public_id=agent.token.split("_")[1]).used_at == first
