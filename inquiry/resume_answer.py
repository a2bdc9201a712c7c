"""The answer of `GET /sessions/{id}/resume`: what inquiry/resume.py knows as JSON, never larger than LARGEST."""

from typing import Any, Final

import orjson

from inquiry.resume import MOST_SHOWN, Done, Open, Resume, sentence
from journal.templatetags.gatebook import shown_state
from sessions import capacity, checkpoints, decisions, facts, handoffs, holders
from sessions.messages import Letter
from sessions.models import Task
from sessions.models_leases import Lease
from sessions.models_messages import Capacity

LARGEST: Final = 32 * 1024  # bytes
_TEXT: Final = 600  # characters of one text
_SUMMARY: Final = 2_000
MOST_ELSEWHERE: Final = 3  # effects of other sessions that are named with one


def as_json(found: Resume) -> bytes:
    """The answer of `GET /sessions/{id}/resume`: at most LARGEST bytes; what had no room is named in `cut`."""
    body = _body(found)
    cut: list[str] = []
    text = orjson.dumps(body)
    for path, whole in _STEPS:
        if len(text) <= LARGEST:
            break
        if _halve(body, path, whole=whole):
            cut += [".".join(path)] if ".".join(path) not in cut else []
            text = orjson.dumps({**body, "cut": cut})
    return text


# What may be left out when the answer grows too large, what matters least first; more than once, as it halves.
_LEAST_FIRST: Final = (
    *(
        ("working_state", "facts"),
        ("working_state", "tasks"),
        ("controls",),
        ("working_state", "charter"),
        ("done",),
    ),
    *(("working_state", "checkpoint", "cache_keys"), ("working_state", "checkpoint", "summary")),
    *(
        ("messages",),
        ("working_state", "checkpoint", "pins"),
        ("crash_recovery", "handoff", "waits_on"),
    ),
    *(("crash_recovery", "incomplete_decisions"), ("crash_recovery", "handoff", "can_wait")),
    *(("crash_recovery", "handoff", "decided"), ("crash_recovery", "handoff", "in_progress")),
    *(("crash_recovery", "open_effects"), ("crash_recovery", "handoff", "needs_attention")),
    *(
        ("messages",),
        ("working_state", "facts"),
        ("working_state", "tasks"),
        ("crash_recovery", "open_effects"),
    ),
)


# Halved in turn, then left out in turn; last of all the effects that need a person, of which one is always told.
_STEPS: Final = (
    *((path, False) for path in _LEAST_FIRST),
    *((path, True) for path in _LEAST_FIRST),
    *[(("because",), False)] * (MOST_SHOWN.bit_length() - 1),
)


def _halve(body: dict[str, Any], path: tuple[str, ...], *, whole: bool) -> bool:
    """Take away half of what stands at `path`, or the whole of it; False where nothing stands there."""
    inner: Any = body
    for name in path[:-1]:
        inner = inner.get(name)
        if not isinstance(inner, dict):
            return False
    value = inner.get(path[-1])
    if not value or not isinstance(value, list | str | dict):
        return False
    kept = 0 if whole else len(value) // 2
    inner[path[-1]] = dict(list(value.items())[:kept]) if isinstance(value, dict) else value[:kept]
    return True


def _body(found: Resume) -> dict[str, Any]:
    session = found.session
    address = f"/api/v1/sessions/{session.id}"
    return {
        "session": {
            "id": str(session.id),
            "handle": str(session),
            "key": session.key,
            "status": session.status,
            "version": session.version,
            "ended": found.ended,
            "ended_at_us": session.ended_at_us if found.ended else None,
        },
        "safe": found.safe,
        "sentence": sentence(found),
        "because": [_blocking(one) for one in found.because[:MOST_SHOWN]],
        "done": [_done(one) for one in found.done],
        "until_us": found.until_us,
        "stopped": found.stopped,
        "too_many_open": found.too_many,
        "now_us": found.now_us,
        "crash_recovery": {
            "open_effects": [_open(one) for one in found.open[:MOST_SHOWN]],
            "open_effects_in_all": len(found.open),
            "by_verdict": dict(found.by_verdict),
            "incomplete_decisions": [_short(decisions.told(row)) for row in found.decisions],
            "handoff": _short(handoffs.told(found.handoff)) if found.handoff is not None else None,
        },
        "messages": [_message(letter) for letter in found.messages],
        "working_state": {
            "charter": session.agent.charter[:_SUMMARY],
            "charter_version": session.agent.charter_version,
            "cursor": session.cursor,
            "tasks": [_task(task) for task in found.tasks],
            "checkpoint": _checkpoint(found.checkpoint),
            "lease": _lease(found.lease, found.now_us),
            "capacity": _capacity(found.capacity, found.now_us),
            "facts": [_short(facts.told(row, found.now_us)) for row in found.facts],
        },
        "controls": [one.told() for one in found.controls],
        "history": {
            "effects": f"/api/v1/effects?session={session.id}",
            "tasks": f"{address}/tasks",
            "decisions": f"{address}/decisions",
            "handoffs": f"{address}/handoffs",
            "checkpoints": f"{address}/checkpoints",
            "facts": f"{address}/facts",
            "page": f"/sessions/{session.id}/",
        },
    }


def _blocking(one: Open) -> dict[str, Any]:
    verdict = one.judged.verdict
    return {
        "effect": str(one.effect.id),
        "handle": str(one.effect),
        "tool": one.effect.tool,
        "verdict": verdict.answer,
        "reason": verdict.reason,
        "sentence": one.sentence,
        **(
            {"same_calls": [link.told() for link in one.elsewhere[:MOST_ELSEWHERE]]}
            if one.elsewhere
            else {}
        ),
    }


def _done(one: Done) -> dict[str, Any]:
    effect = one.effect
    told = {
        "effect": str(effect.id),
        "handle": str(effect),
        "tool": effect.tool,
        "sentence": one.sentence,
        "unheard": one.unheard,
        "effect_key": effect.effect_key,
        "gist": one.gist[:120],
        "state": effect.state,
        "outcome": effect.outcome or None,
        "external_reference": effect.external_reference or None,
        "intent_digest": effect.intent_digest or None,
        "changed_us": effect.changed_us,
    }
    return {name: value for name, value in told.items() if value is not None}


def _open(one: Open) -> dict[str, Any]:
    verdict, effect = one.judged.verdict, one.effect
    told = {
        **_blocking(one),
        "effect_key": effect.effect_key,
        "gist": one.gist[:200],
        "state": shown_state(effect, 0),
        "leave": effect.leave,
        "attempt": effect.attempt_count or None,
        "row": verdict.row,
        "until_us": verdict.until_us,
        "remote_key": verdict.remote_key or None,
        "needs_leave": verdict.asks_leave or None,
        "intent_digest": effect.intent_digest or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _task(task: Task) -> dict[str, Any]:
    told = {"id": str(task.id), "key": task.key, "title": task.title[:120], "state": task.state}
    return told | {"version": task.version, "priority": task.priority}


def _message(letter: Letter) -> dict[str, Any]:
    message = letter.message
    told = {
        "id": str(message.id),
        "handle": str(message),
        "from_agent": message.from_agent.name if message.from_agent is not None else None,
        "from_person": message.from_user_id is not None,
        "subject": letter.subject,
        "body": letter.body,
        "erased": letter.body is None,
        "sent_at_us": message.sent_at_us,
    }
    return _short(told)


def _lease(lease: Lease | None, now_us: int) -> dict[str, Any] | None:
    if lease is None:
        return None
    return {
        "id": str(lease.id),
        "process": lease.process,
        "epoch": lease.epoch,
        "live": holders.is_live(lease, now_us),
        "released": lease.released_at_us is not None,
        "expires_at_us": lease.expires_at_us,
        "beat_at_us": lease.beat_at_us,
        "progress_at_us": lease.progress_at_us,
    }


def _capacity(row: Capacity | None, now_us: int) -> dict[str, Any] | None:
    if row is None:
        return None
    names = (
        "context_left_tokens",
        "context_total_tokens",
        "time_left_s",
        "queue",
        "reported_at_us",
    )
    told = {name: getattr(row, name) for name in names}
    return told | {"fresh": capacity.is_fresh(row, now_us), "paced": capacity.is_paced(row, now_us)}


def _checkpoint(row: Any) -> dict[str, Any] | None:
    if row is None:
        return None
    told = checkpoints.told(row, whole=False)
    if isinstance(told.get("summary"), str):
        told["summary"] = told["summary"][:_SUMMARY]
    return told | {"state": f"/api/v1/checkpoints/{row.id}"}


def _short(told: dict[str, Any]) -> dict[str, Any]:
    """With each text cut to what a glance takes in; lists keep their first ten."""

    def cut(value: Any) -> Any:
        if isinstance(value, str):
            return value if len(value) <= _TEXT else f"{value[:_TEXT]}…"
        if isinstance(value, list):
            return [cut(one) for one in value[:10]]
        if isinstance(value, dict):
            return {name: cut(one) for name, one in list(value.items())[:20]}
        return value

    return {name: cut(value) for name, value in told.items()}
