"""Facts that hooks report after the event: evidence, which is recorded whatever happened."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from api.endpoint import Call
from api.events.parse import parse_items
from api.events.record import is_accepted, record_batch
from api.strictjson.canonical_json import to_canonical_text
from api.strictjson.parser import Parsed
from hooks.coding_agents.call_results import shorten_result
from hooks.coding_agents.hook_answers import HookAnswer
from hooks.coding_agents.hook_events import HookEvent, compute_text_digest
from hooks.coding_agents.hook_sessions import (
    build_fact_key,
    build_origin,
    build_title,
    load_hook_session,
)
from hooks.coding_agents.resume_notes import describe_open_effects
from sessions import sessions
from sessions.models import ENDED, Session

# Events that show that the session's client works again.
_AT_WORK: Final = frozenset({"SessionStart", "UserPromptSubmit", "BeforeAgent"})
_TURN_ENDS: Final = frozenset({"Stop", "AfterAgent"})
_ENDS: Final = frozenset({"SessionEnd"})
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+")


def record_facts(call: Call, facts: Sequence[Mapping[str, Any]]) -> None:
    """Record facts as evidence, in the transaction of the hook. Raises ValueError if refused."""
    parsed = [Parsed(dict(fact), to_canonical_text(fact)) for fact in facts]
    items, rejected = parse_items(call, parsed)
    results = record_batch(call, items, rejected, atomic=False)
    refused = [result for result in results if not is_accepted(result) and "code" in result]
    if any(result["code"] != "key_reuse" for result in refused):
        raise ValueError(f"A fact of the hook was not recorded: {refused}")


def build_fact(
    event: HookEvent, kind: str, key: str, session_key: str, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a fact as POST /events takes it."""
    fact: dict[str, Any] = {"id": key, "kind": kind, "session": session_key, **values}
    if event.occurred_us is not None:
        fact["occurred_us"] = event.occurred_us
    return fact


def record_hook_event(call: Call, event: HookEvent, session: UUID) -> HookAnswer:
    """Record a hook that is not about a call; answer what the model or its user should read."""
    row = load_hook_session(session)
    fields = {name: value for name, value in event.fields.items() if name != "gatebook"}
    # Without a turn or a time, equal hooks differ by what happened between them.
    moment = event.turn or event.delivery or row.effect_count
    key = build_fact_key(event.name, to_canonical_text(fields), moment)
    kind = f"hook.{to_kind_word(event.name)}"
    values = {"client": event.client, "hook": shorten_result(fields)}
    record_facts(call, [build_fact(event, kind, key, row.key, values)])
    title = build_title(event)
    if title and not row.title:
        change_hook_session(call, event, row, {"title": title})
    if event.name in _AT_WORK:
        _change_status(call, event, row, {"status": "running"})
        return HookAnswer(context=describe_open_effects(call, session))
    if event.name in _TURN_ENDS:
        return HookAnswer(message=describe_open_effects(call, session))
    # The client may resume the session at any time, so its end only suspends the session.
    if event.name in _ENDS and row.status == "running":
        _change_status(call, event, row, {"status": "suspended"})
    return HookAnswer()


def record_status(call: Call, event: HookEvent, session: UUID, waiting_on: str) -> None:
    """Record that the session waits for people, or works again if `waiting_on` is empty."""
    row = load_hook_session(session)
    values = {"status": "waiting", "waiting_on": waiting_on} if waiting_on else {}
    _change_status(call, event, row, values or {"status": "running"})


def _change_status(call: Call, event: HookEvent, row: Session, values: dict[str, str]) -> None:
    if row.status not in (*ENDED, values["status"]):
        change_hook_session(call, event, row, values)


def change_hook_session(call: Call, event: HookEvent, row: Session, values: dict[str, str]) -> None:
    """Change fields of a locked session."""
    key = build_fact_key("session.changed", row.key, row.version, *values.values())
    body = {"kind": "session.changed", "session": row.key, **values}
    sessions.update_session(build_origin(call, event, key, body), row, values, {})
    row.refresh_from_db(fields=["version"])


def to_kind_word(name: str) -> str:
    """Return an event's name as the second word of an entry's kind."""
    words = "_".join(word.lower() for word in _WORD.findall(name))
    return (
        words
        if 0 < len(words) <= 50
        else f"event_{compute_text_digest(name)[:8].translate(_LETTERS)}"
    )


_LETTERS: Final = str.maketrans("0123456789", "ghijklmnop")
