"""Hostile text in single fields: control characters, NUL, and exactly stored numbers."""

import json
from typing import Any, get_args

import msgspec
import pytest

from api.openapi.document import ENDPOINTS
from journal.models import Body
from tests.api.api_client import Caller, code
from tests.api.test_hostile import BASES, ids, rows
from tests.matrices import keep_core

__all__ = ["ids"]

FREE_TEXT = {
    *(
        "title",
        "why",
        "detail",
        "result",
        "arguments",
        "preconditions",
        "subject",
        "body",
        "summary",
        "outcome",
    ),
    *(
        "choice",
        "rationale",
        "planned_action",
        "alternatives",
        "in_progress",
        "decided",
        "needs_attention",
        "can_wait",
    ),
}
LISTS = ("free_text", "cache_keys")
MAPS = ("labels", "pins")


def identifiers() -> dict[str, list[str]]:
    """Return by path the text fields that are not free text."""
    names: dict[str, list[str]] = {}
    for endpoint in ENDPOINTS:
        if endpoint.shape is not None:
            for field in msgspec.structs.fields(endpoint.shape):
                if field.name not in FREE_TEXT and (
                    field.type is str or str in _leaves(field.type)
                ):
                    names.setdefault(endpoint.path, []).append(field.name)
    return names


def _leaves(annotation: Any) -> set[Any]:
    parts = get_args(annotation)
    return {annotation} if not parts else {leaf for part in parts for leaf in _leaves(part)}


@pytest.mark.parametrize(
    ("path", "fields"),
    keep_core(sorted(identifiers().items()), one_in=5, mark=pytest.mark.matrix_on_postgresql),
)
def test_control_characters_have_no_place_in_identifiers(
    agent: Caller, ids: dict[str, str], path: str, fields: list[str]
) -> None:
    before = rows()
    for field in fields:
        for text in ("a\0b", "\0", "a\nb", "a\n", "\x1b[31m", "a\x7f", "a\x85"):
            value: Any = text
            if field in (*LISTS, *MAPS):
                value = [text] if field in LISTS else {"name": text}
            answer = agent.post(path.format(**ids), {**BASES[path], field: value})
            assert code(answer) == (422, "invalid"), (field, text)
    assert rows() == before


def test_nul_in_free_text_is_kept_exactly(agent: Caller, ids: dict[str, str]) -> None:
    nasty = "a\0b\x1b[31m\u202e\u2066\ufeff\U0001f600\U0010ffff"
    effect = {"session": "s-1", "effect_key": "n", "tool": "t"}
    sent: dict[str, tuple[str, dict[str, Any]]] = {
        "session": ("/sessions", {"key": "n", "title": nasty}),
        "task": (f"/sessions/{ids['session']}/tasks", {"key": "n", "title": nasty}),
        "change": (f"/tasks/{ids['task']}/change", {"title": nasty}),
        "checkpoint": (
            f"/sessions/{ids['session']}/checkpoints",
            {"summary": nasty, "state": {nasty: nasty}},
        ),
        "decision": (
            f"/sessions/{ids['session']}/decisions",
            {"key": "n", "choice": nasty, "rationale": nasty},
        ),
        "handoff": (f"/sessions/{ids['session']}/handoffs", {"can_wait": [nasty]}),
        "fact": (
            f"/sessions/{ids['session']}/facts",
            {"name": "n", "value": [nasty], "source": "s"},
        ),
        "items": (
            f"/tasks/{ids['task']}/items",
            {"items": [{"key": "i", "state": "done", "detail": nasty}]},
        ),
        "plan": (
            "/effects",
            {**effect, "arguments": {nasty: [nasty]}, "why": nasty, "preconditions": {"p": nasty}},
        ),
    }
    for name, (path, body) in sent.items():
        assert agent.post(path, body, key=name).status_code in (200, 201), name
        kept = json.loads(Body.objects.get(entry__event_id=name).text)
        assert {field: kept[field] for field in body} == body
    planned = agent.plan("m", arguments={"x": nasty})
    agent.dispatch(planned)
    agent.post(
        f"/effects/{planned['id']}/acknowledge",
        {"attempt": 1, "outcome": "ok", "result": nasty},
        key="ack",
    )
    assert json.loads(Body.objects.get(entry__event_id="ack").text)["result"] == nasty
    items = [
        {"id": "r-1", "kind": "session.started", "session": "r", "title": nasty},
        {
            "id": "r-2",
            "kind": "effect.planned",
            "session": "r",
            "effect_key": "e",
            "tool": "t",
            "arguments": nasty,
        },
        {
            "id": "r-3",
            "kind": "effect.acknowledged",
            "session": "r",
            "effect_key": "e",
            "outcome": "ok",
            "result": nasty,
        },
        {"id": "r-4", "kind": "task.created", "session": "r", "task": "t", "title": nasty},
        {"id": "r-5", "kind": "moon.risen", "session": "r", nasty: nasty},
    ]
    assert agent.report(items).json()["accepted"] == 5
    for item in items:
        assert json.loads(Body.objects.get(entry__event_id=item["id"]).text) == item
    # The stored bytes equal the sent ones: nothing is rewritten on input.
    assert {result["status"] for result in agent.report(items).json()["results"]} == {"duplicate"}


def test_numbers_are_kept_digit_for_digit(agent: Caller) -> None:
    agent.session("s-1")
    body = b'{"session":"s-1","effect_key":"e","tool":"t","arguments":{"n":9007199254740993}}'
    item = b'{"id":"n","kind":"effect.planned",' + body[1:].replace(b"}}", b',"f":1e2,"m":-0.0}}')
    assert agent.raw("/events", b"[" + item + b"]").status_code == 200
    kept = Body.objects.get(entry__event_id="n").text
    assert '"n":9007199254740993' in kept
    assert json.loads(kept)["arguments"]["f"] == 100
