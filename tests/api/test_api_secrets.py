"""Secrets and logs: accidentally sent secrets are readable nowhere, and logs cannot be forged."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from accounts import people
from accounts.models import Project
from config.logging import JSONFormatter
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session
from tests.api.api_client import Caller, code, new_key
from tests.api.rows import select_body_text
from tests.api.test_redaction import FURTHER, PLACES, SECRETS
from tests.matrices import keep_core
from tests.pages.people import PASSWORD, Organization, signed_in

pytestmark = pytest.mark.once
ONE_IN = 4  # places of a secret, and keys with one, in the core


def database() -> str:
    """Return every row of every table as text."""
    tables = [list(model._default_manager.values()) for model in apps.get_models()]
    return "".join(repr(rows) for rows in tables)


def pages(project: str = "default") -> Iterator[str]:
    """Return the pages without arguments that an administrator can read, and those of effects and
    sessions."""
    with transaction.atomic():
        home = Project.objects.get(name=project)
        people.add_project_member(home, "root", "administrator", PASSWORD)
    browser = Client()
    browser.cookies[settings.SESSION_COOKIE_NAME] = signed_in("root")
    objects = [
        *(f"/effects/{effect}/" for effect in Effect.objects.values_list("id", flat=True)[:30]),
        *(f"/sessions/{session}/" for session in Session.objects.values_list("id", flat=True)),
    ]
    for path in (*_paths(get_resolver().url_patterns), *objects):
        answer = browser.get(path, follow=True)
        assert answer.status_code == 200 or path not in objects, path
        assert "Choose your own password" not in answer.text, path
        if answer.get("Content-Type", "").startswith("text/"):
            yield answer.text


def _paths(patterns: list[URLPattern | URLResolver], prefix: str = "/") -> Iterator[str]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _paths(pattern.url_patterns, route)
        elif "<" not in route:
            yield route


@pytest.fixture
def log() -> Iterator[StringIO]:
    """Collect the log of the test in its output format."""
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JSONFormatter())
    client = logging.getLogger("httpx")  # without the log of the client itself
    client_level = client.level
    client.setLevel(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("", "django", "django.request", "gatebook.api")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield written
    client.setLevel(client_level)
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("one_in", keep_core([1, ONE_IN], [ONE_IN]))
def test_a_secret_of_every_kind_in_every_place_is_nowhere_to_be_read(
    agent: Caller, log: StringIO, one_in: int
) -> None:
    """Without the journal, test_redaction.py tries every kind in every place."""
    agent.session("s-1")
    plain: list[str] = []
    items = []
    for number, (kind, (text, secret)) in enumerate(SECRETS.items()):
        plain.append(secret)
        for place, put in list(PLACES.items())[number % one_in :: one_in]:
            fields = put(text)
            name = f"{kind}-{place}"
            body = {"session": "s-1", "effect_key": name, "tool": "t", "turn": "1", **fields}
            planned = agent.post("/effects", body)
            assert planned.status_code == 201, planned.text
            assert planned.json()["redactions"] >= 1, name
            assert secret not in planned.text
            items.append({"id": name, "kind": "effect.planned", **body, "session": "s-2"})
            if "arguments" in fields and place != "rationale":
                # The intent is the same when the same arguments are sent again at the dispatch.
                again = {"process": "p", "arguments": fields["arguments"]}
                granted = agent.post(f"/effects/{planned.json()['id']}/dispatch", again)
                assert granted.status_code == 200, (name, granted.text)
                result = {"attempt": 1, "outcome": "error", "result": text}
                assert (
                    agent.post(f"/effects/{planned.json()['id']}/acknowledge", result).status_code
                    == 200
                )
    for start in range(0, len(items), 100):
        assert agent.report(items[start : start + 100]).status_code == 200
    assert not Effect.objects.filter(session__key="s-2", redactions=0).exists()
    everything = [database(), log.getvalue(), *pages()]
    assert len(everything) > 8
    for secret in plain:
        for where, text in enumerate(everything):
            assert secret not in text, (secret[:8], where)


@pytest.mark.parametrize("one_in", keep_core([1, ONE_IN], [ONE_IN]))
def test_a_secret_as_key_or_name_is_stored_as_a_mark_and_the_key_still_works(
    agent: Caller, one_in: int
) -> None:
    session = agent.session("s-1")
    forms = [text for text, _ in SECRETS.values()] + [text for _, text, _ in FURTHER]
    keys = [
        text for text in forms if re.fullmatch("[!-~]{1,64}", text) and not text.startswith("gbk_")
    ]
    assert len(keys) > 40
    path = f"/sessions/{session['id']}/tasks"
    for number, key in enumerate(keys[::one_in]):
        answer = agent.post(path, {"key": f"t-{number}", "title": "work"}, key=key)
        assert answer.status_code == 201, answer.text
        again = agent.post(path, {"key": f"t-{number}", "title": "work"}, key=key)
        assert (again.headers["Idempotent-Replay"], again.json()) == ("true", answer.json())
        other = agent.post(path, {"key": "another", "title": "work"}, key=key)
        assert code(other) == (422, "key_reuse")
        assert agent.get("/events/receipt", id=key).json()["kind"] == "task.created"
    secret = SECRETS["github"][0]
    effect = agent.plan(
        secret, session=agent.session(secret)["id"], arguments={"n": 1}, turn=secret
    )
    agent.dispatch(effect)
    agent.acknowledge(effect, external_reference=secret)
    agent.report([{"id": f"x-{secret}", "kind": "moon.risen", "session": secret}])
    assert agent.get("/events/receipt", id=f"x-{secret}").status_code == 200
    everything = database()
    for key in [*keys[::one_in], secret]:
        assert key not in everything, key
    assert (
        agent.plan(secret, session=effect["session"], arguments={"n": 1}, turn=secret)["id"]
        == effect["id"]
    )


def test_two_keys_with_secrets_are_two_keys(agent: Caller) -> None:
    first, second = ("npm_" + "a1" * 18, "npm_" + "b2" * 18)
    for number, key in enumerate((first, second)):
        assert agent.post("/sessions", {"key": f"s-{number}"}, key=key).status_code == 201
    ids = set(Entry.objects.filter(lane="command").values_list("event_id", flat=True))
    assert len(ids) == 2
    assert all(re.fullmatch(r"\[redacted:idempotency_key:[0-9a-f]{32}\]", mark) for mark in ids)


def test_recorded_searches_contain_no_secrets(organization: Organization, agent: Caller) -> None:
    agent.session("s-1")
    secret = SECRETS["github"][0]
    # By its words: the text of an agent and of a person.
    assert agent.get("/search", q=f"effect tool:{secret}").status_code == 200
    page = organization.client("viewer").get("/search/", {"q": f"effect tool:{secret}"})
    assert page.status_code == 200
    searched = Entry.objects.filter(kind="access.searched")
    assert searched.count() == 2
    texts = [select_body_text(entry.position) for entry in searched]
    assert all("[redacted:github:" in text for text in texts), texts
    assert secret not in database()


def test_equal_secrets_correlate_within_a_project_and_not_across(
    agent: Caller, stranger: Caller
) -> None:
    secret = SECRETS["github"][0]
    marks = []
    for caller in (agent, stranger):
        caller.session("s-1")
        for number in range(2):
            effect = caller.plan(f"e-{number}", arguments={"n": number, "header": secret})
            text = select_body_text(Effect.objects.get(id=effect["id"]).plan_position)
            marks.append(json.loads(text)["arguments"]["header"])
    assert marks[0] == marks[1] != marks[2] == marks[3]
    assert marks[0].startswith("[redacted:github:")


def test_a_project_without_redaction_stores_payloads_unchanged(
    call: Callable[..., Caller],
) -> None:
    plain = Project.objects.create(name="plain", redacts=False)
    agent = call("tester", "plain")
    agent.session("s-1")
    effect = agent.plan("e", arguments={"header": SECRETS["github"][0]})
    assert "redactions" not in effect
    assert SECRETS["github"][0] in database()
    # What agents rely on cannot be switched, even by who may write the row.
    call()
    usual = Project.objects.get(name="default")
    for project, redacts in ((plain, True), (usual, False)):
        with pytest.raises(DatabaseError, match="project_redacts_as_created"), transaction.atomic():
            Project.objects.filter(pk=project.pk).update(redacts=redacts)


def test_a_token_is_in_no_table_page_or_log(
    agent: Caller, call: Callable[..., Caller], log: StringIO
) -> None:
    other = call("another")
    session = agent.session("s-1", title=f"mine is {agent.token}", labels={"a": other.token})
    task = agent.post(f"/sessions/{session['id']}/tasks", {"key": "t", "title": agent.token}).json()
    agent.post(
        f"/tasks/{task['id']}/items",
        {"items": [{"key": agent.token, "state": "done", "detail": other.token}]},
    )
    effect = agent.plan(
        "e", arguments={"curl": f"-H 'Authorization: Bearer {agent.token}'"}, why=other.token
    )
    agent.dispatch(effect)
    agent.acknowledge(
        effect, external_reference=f"https://x.example/?t={agent.token}", result=[agent.token]
    )
    agent.post(
        f"/effects/{effect['id']}/fail", {"attempt": 1, "reason": "error", "detail": other.token}
    )
    agent.report(
        [
            {
                "id": agent.token,
                "kind": "moon.risen",
                "session": agent.token,
                agent.token: other.token,
            }
        ]
    )
    agent.raw("/events", f'{{"id": "{agent.token}"'.encode())
    for refused in (
        agent.post("/sessions", {"key": "s-2"}, key=agent.token),
        agent.client.get(f"/sessions?token={agent.token}"),
        agent.client.get(f"/sessions?x={agent.token}"),
        agent.client.get(f"/{agent.token}"),
        agent.client.get(
            "/sessions",
            headers={"User-Agent": agent.token, "Authorization": "Bearer " + agent.token[:-1]},
        ),
        agent.post("/effects", {"session": "s-1", agent.token: 1}),
        agent.post(
            "/effects", {"session": "s-1", "effect_key": "e", "tool": agent.token, "arguments": 2}
        ),
    ):
        assert 400 <= refused.status_code < 500
    everything = [database(), log.getvalue(), *pages()]
    for token in (agent.token, other.token):
        for where, text in enumerate(everything):
            assert token not in text, where
            assert token.split("_", 2)[2] not in text, where


def test_no_request_can_forge_a_line_of_the_log(
    agent: Caller, log: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = '\r\n{"event": "forged", "level": "info"}\r\n\x1b[2J\u202e\x85\u2028'
    agent.session("s-1")

    def fault(*_: Any, **__: Any) -> None:
        raise RuntimeError(forged)

    def send() -> None:
        agent.client.get("/sessions/" + "%0d%0a%1b[2J%7f%C2%85")
        agent.client.get(
            "/sessions", headers={"User-Agent": "x%0d%0aforged", "X-Forwarded-For": "1.1.1.1"}
        )
        agent.post("/effects", {"session": forged, "effect_key": forged, "tool": forged})
        agent.plan("e-" + new_key(), why=forged, arguments={"n": new_key()})
        agent.report([{"id": forged, "kind": forged, "session": forged}])

    send()
    monkeypatch.setattr("api.events.record.record_batch", fault)
    monkeypatch.setattr("approvals.plan_command.plan_with_policy", fault)
    assert agent.report([{"id": "x", "kind": "moon.risen", "session": "s"}]).status_code == 500
    answer = agent.post("/effects", {"session": "s-1", "effect_key": "e", "tool": "t"})
    assert code(answer) == (500, "server_error")
    assert "forged" not in answer.text
    lines = log.getvalue().splitlines()
    assert lines
    assert log.getvalue().isascii()
    for line in lines:
        assert line.isprintable()
        assert json.loads(line)["event"] != "forged"
