"""JSON of `GET /sessions/{id}/resume`, cut to at most LARGEST bytes."""

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
MOST_ELSEWHERE: Final = 3  # same calls in other sessions, listed per effect


def as_json(state: Resume) -> bytes:
    """Serialize the resume state to at most LARGEST bytes; `cut` names the shortened parts."""
    body = _body(state)
    cut: list[str] = []
    text = orjson.dumps(body)
    for path, whole in _STEPS:
        if len(text) <= LARGEST:
            break
        if _halve(body, path, whole=whole):
            cut += [".".join(path)] if ".".join(path) not in cut else []
            text = orjson.dumps({**body, "cut": cut})
    return text


# Parts to shorten if the answer is too large, least important first. A part may occur twice: each
# step halves it.
_LEAST_FIRST: Final = (
    ("working_state", "facts"),
    ("working_state", "tasks"),
    ("controls",),
    ("working_state", "charter"),
    ("done",),
    ("working_state", "checkpoint", "cache_keys"),
    ("working_state", "checkpoint", "summary"),
    ("messages",),
    ("working_state", "checkpoint", "pins"),
    ("crash_recovery", "handoff", "waits_on"),
    ("crash_recovery", "incomplete_decisions"),
    ("crash_recovery", "handoff", "can_wait"),
    ("crash_recovery", "handoff", "decided"),
    ("crash_recovery", "handoff", "in_progress"),
    ("crash_recovery", "open_effects"),
    ("crash_recovery", "handoff", "needs_attention"),
    ("messages",),
    ("working_state", "facts"),
    ("working_state", "tasks"),
    ("crash_recovery", "open_effects"),
)


# First halve each part, then drop each; last halve the effects that need a person, keeping one.
_STEPS: Final = (
    *((path, False) for path in _LEAST_FIRST),
    *((path, True) for path in _LEAST_FIRST),
    *[(("because",), False)] * (MOST_SHOWN.bit_length() - 1),
)


def _halve(body: dict[str, Any], path: tuple[str, ...], *, whole: bool) -> bool:
    """Remove half of the value at `path`, or all of it; return False if there is none."""
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


def _body(state: Resume) -> dict[str, Any]:
    session = state.session
    address = f"/api/v1/sessions/{session.id}"
    return {
        "session": {
            "id": str(session.id),
            "handle": str(session),
            "key": session.key,
            "status": session.status,
            "version": session.version,
            "ended": state.ended,
            "ended_at_us": session.ended_at_us if state.ended else None,
        },
        "safe": state.safe,
        "sentence": sentence(state),
        "because": [_blocking(item) for item in state.because[:MOST_SHOWN]],
        "done": [_done(item) for item in state.done],
        "until_us": state.until_us,
        "stopped": state.stopped,
        "too_many_open": state.too_many,
        "now_us": state.now_us,
        "crash_recovery": {
            "open_effects": [_open(item) for item in state.open[:MOST_SHOWN]],
            "open_effects_in_all": len(state.open),
            "by_verdict": dict(state.by_verdict),
            "incomplete_decisions": [_short(decisions.told(row)) for row in state.decisions],
            "handoff": _short(handoffs.told(state.handoff)) if state.handoff is not None else None,
        },
        "messages": [_message(letter) for letter in state.messages],
        "working_state": {
            "charter": session.agent.charter[:_SUMMARY],
            "charter_version": session.agent.charter_version,
            "cursor": session.cursor,
            "tasks": [_task(task) for task in state.tasks],
            "checkpoint": _checkpoint(state.checkpoint),
            "lease": _lease(state.lease, state.now_us),
            "capacity": _capacity(state.capacity, state.now_us),
            "facts": [_short(facts.told(row, state.now_us)) for row in state.facts],
        },
        "controls": [item.told() for item in state.controls],
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


def _blocking(item: Open) -> dict[str, Any]:
    verdict = item.judged.verdict
    return {
        "effect": str(item.effect.id),
        "handle": str(item.effect),
        "tool": item.effect.tool,
        "verdict": verdict.answer,
        "reason": verdict.reason,
        "sentence": item.sentence,
        **(
            {"same_calls": [link.told() for link in item.elsewhere[:MOST_ELSEWHERE]]}
            if item.elsewhere
            else {}
        ),
    }


def _done(item: Done) -> dict[str, Any]:
    effect = item.effect
    fields = {
        "effect": str(effect.id),
        "handle": str(effect),
        "tool": effect.tool,
        "sentence": item.sentence,
        "unheard": item.unheard,
        "effect_key": effect.effect_key,
        "gist": item.gist[:120],
        "state": effect.state,
        "outcome": effect.outcome or None,
        "external_reference": effect.external_reference or None,
        "intent_digest": effect.intent_digest or None,
        "changed_us": effect.changed_us,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _open(item: Open) -> dict[str, Any]:
    verdict, effect = item.judged.verdict, item.effect
    fields = {
        **_blocking(item),
        "effect_key": effect.effect_key,
        "gist": item.gist[:200],
        "state": shown_state(effect, 0),
        "leave": effect.leave,
        "attempt": effect.attempt_count or None,
        "row": verdict.row,
        "until_us": verdict.until_us,
        "remote_key": verdict.remote_key or None,
        "needs_leave": verdict.asks_leave or None,
        "intent_digest": effect.intent_digest or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _task(task: Task) -> dict[str, Any]:
    fields = {"id": str(task.id), "key": task.key, "title": task.title[:120], "state": task.state}
    return fields | {"version": task.version, "priority": task.priority}


def _message(letter: Letter) -> dict[str, Any]:
    message = letter.message
    fields = {
        "id": str(message.id),
        "handle": str(message),
        "from_agent": message.from_agent.name if message.from_agent is not None else None,
        "from_person": message.from_user_id is not None,
        "subject": letter.subject,
        "body": letter.body,
        "erased": letter.body is None,
        "sent_at_us": message.sent_at_us,
    }
    return _short(fields)


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
    fields = {name: getattr(row, name) for name in names}
    return fields | {
        "fresh": capacity.is_fresh(row, now_us),
        "paced": capacity.is_paced(row, now_us),
    }


def _checkpoint(row: Any) -> dict[str, Any] | None:
    if row is None:
        return None
    fields = checkpoints.told(row, whole=False)
    if isinstance(fields.get("summary"), str):
        fields["summary"] = fields["summary"][:_SUMMARY]
    return fields | {"state": f"/api/v1/checkpoints/{row.id}"}


def _short(fields: dict[str, Any]) -> dict[str, Any]:
    """Shorten texts to _TEXT characters, lists to ten items and objects to twenty."""

    def cut(value: Any) -> Any:
        if isinstance(value, str):
            return value if len(value) <= _TEXT else f"{value[:_TEXT]}…"
        if isinstance(value, list):
            return [cut(item) for item in value[:10]]
        if isinstance(value, dict):
            return {name: cut(item) for name, item in list(value.items())[:20]}
        return value

    return {name: cut(value) for name, value in fields.items()}
