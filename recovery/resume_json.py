"""JSON of `GET /sessions/{id}/resume`, cut to at most MAX_BYTES bytes."""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from recovery.resume import MAX_SHOWN, CompletedEffect, OpenEffect, ResumeState, resume_sentence
from sessions import capacity, checkpoints, decisions, facts, handoffs, lease_queries
from sessions.messages import MessageView
from sessions.models import Capacity, Lease, Task
from web.templatetags.gatebook import derive_shown_state

MAX_BYTES: Final = 32 * 1024  # bytes
_TEXT: Final = 600  # characters of one text
_SUMMARY: Final = 2_000
MAX_SAME_CALLS: Final = 3  # same calls in other sessions, listed per effect


def resume_to_json(state: ResumeState, repeats: Sequence[dict[str, Any]]) -> bytes:
    """Serialize the resume state to at most MAX_BYTES bytes; `cut` names the shortened parts.

    `repeats` are calls of the session that other sessions made too, whatever became of them.
    """
    body = _resume_body(state) | {"repeats": repeats}
    cut: list[str] = []
    text = orjson.dumps(body)
    for path, whole in _SHRINK_STEPS:
        if len(text) <= MAX_BYTES:
            break
        if _shrink_part(body, path, whole=whole):
            cut += [".".join(path)] if ".".join(path) not in cut else []
            text = orjson.dumps({**body, "cut": cut})
    return text


# Parts to shorten if the answer is too large, least important first. A part may occur twice: each
# step halves it.
_LEAST_FIRST: Final = (
    ("working_state", "facts"),
    ("working_state", "tasks"),
    ("controls",),
    ("repeats",),
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
_SHRINK_STEPS: Final = (
    *((path, False) for path in _LEAST_FIRST),
    *((path, True) for path in _LEAST_FIRST),
    *[(("because",), False)] * (MAX_SHOWN.bit_length() - 1),
)


def _shrink_part(body: dict[str, Any], path: tuple[str, ...], *, whole: bool) -> bool:
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


def _resume_body(state: ResumeState) -> dict[str, Any]:
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
        "sentence": resume_sentence(state),
        "because": [_blocking_to_json(item) for item in state.because[:MAX_SHOWN]],
        "done": [_done_to_json(item) for item in state.done],
        "until_us": state.until_us,
        "stopped": state.stopped,
        "too_many_open": state.too_many,
        "now_us": state.now_us,
        "crash_recovery": {
            "open_effects": [_open_to_json(item) for item in state.open[:MAX_SHOWN]],
            "open_effects_in_all": len(state.open),
            "by_verdict": dict(state.by_verdict),
            "incomplete_decisions": [
                _shorten(decisions.decision_to_json(row)) for row in state.decisions
            ],
            "handoff": _shorten(handoffs.handoff_to_json(state.handoff))
            if state.handoff is not None
            else None,
        },
        "messages": [_message_to_json(view) for view in state.messages],
        "working_state": {
            "charter": session.agent.charter[:_SUMMARY],
            "charter_version": session.agent.charter_version,
            "cursor": session.cursor,
            "tasks": [_task_to_json(task) for task in state.tasks],
            "checkpoint": _checkpoint_to_json(state.checkpoint),
            "lease": _lease_to_json(state.lease, state.now_us),
            "capacity": _capacity_to_json(state.capacity, state.now_us),
            "facts": [_shorten(facts.fact_to_json(row, state.now_us)) for row in state.facts],
        },
        "controls": [item.to_json() for item in state.controls],
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


def _blocking_to_json(item: OpenEffect) -> dict[str, Any]:
    verdict = item.evaluation.verdict
    return {
        "effect": str(item.effect.id),
        "handle": str(item.effect),
        "tool": item.effect.tool,
        "verdict": verdict.answer,
        "reason": verdict.reason,
        "sentence": item.sentence,
        **(
            {"same_calls": [link.to_json() for link in item.elsewhere[:MAX_SAME_CALLS]]}
            if item.elsewhere
            else {}
        ),
    }


def _done_to_json(item: CompletedEffect) -> dict[str, Any]:
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


def _open_to_json(item: OpenEffect) -> dict[str, Any]:
    verdict, effect = item.evaluation.verdict, item.effect
    fields = {
        **_blocking_to_json(item),
        "effect_key": effect.effect_key,
        "gist": item.gist[:200],
        "state": derive_shown_state(effect, 0),  # 0: the verdict tells about a passed deadline
        "permission": effect.permission,
        "attempt": effect.attempt_count or None,
        "row": verdict.row,
        "until_us": verdict.until_us,
        "remote_key": verdict.remote_key or None,
        "needs_permission": verdict.needs_new_permission or None,
        "intent_digest": effect.intent_digest or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _task_to_json(task: Task) -> dict[str, Any]:
    fields = {"id": str(task.id), "key": task.key, "title": task.title[:120], "state": task.state}
    return fields | {"version": task.version, "priority": task.priority}


def _message_to_json(view: MessageView) -> dict[str, Any]:
    message = view.message
    fields = {
        "id": str(message.id),
        "handle": str(message),
        "from_agent": message.from_agent.name if message.from_agent is not None else None,
        "from_person": message.from_user_id is not None,
        "subject": view.subject,
        "body": view.body,
        "erased": view.body is None,
        "sent_at_us": message.sent_at_us,
    }
    return _shorten(fields)


def _lease_to_json(lease: Lease | None, now_us: int) -> dict[str, Any] | None:
    if lease is None:
        return None
    return {
        "id": str(lease.id),
        "process": lease.process,
        "epoch": lease.epoch,
        "live": lease_queries.is_lease_live(lease, now_us),
        "released": lease.released_at_us is not None,
        "expires_at_us": lease.expires_at_us,
        "heartbeat_at_us": lease.heartbeat_at_us,
        "progress_at_us": lease.progress_at_us,
    }


def _capacity_to_json(row: Capacity | None, now_us: int) -> dict[str, Any] | None:
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
        "fresh": capacity.is_capacity_fresh(row, now_us),
        "paced": capacity.is_throttling(row, now_us),
    }


def _checkpoint_to_json(row: Any) -> dict[str, Any] | None:
    if row is None:
        return None
    fields = checkpoints.checkpoint_to_json(row, with_state=False)
    if isinstance(fields.get("summary"), str):
        fields["summary"] = fields["summary"][:_SUMMARY]
    return fields | {"state": f"/api/v1/checkpoints/{row.id}"}


def _shorten(fields: dict[str, Any]) -> dict[str, Any]:
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
