"""Endpoints for the hooks of coding agents.

Every answer is HTTP 200 with the JSON that the client reads: Claude Code, Codex and Gemini run a
call whose hook fails. Whatever goes wrong, a call that waits for the answer is denied. Only a
report of the command `gatebook hook` that is not recorded is answered with an error status: the
command keeps it and sends it again.
"""

from collections.abc import Callable
from typing import Any, Final

import orjson
import structlog
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from api import endpoint
from api.endpoint import Call
from api.idempotency import Reply
from api.problems import Problem
from api.redaction import redact
from api.strictjson.canonical_json import to_canonical_text
from db import long_numbers, outages
from db.clock import now_us
from hooks.coding_agents import hook_answers, hook_facts, planned_calls, reported_calls
from hooks.coding_agents.call_intents import build_call_intent
from hooks.coding_agents.call_results import read_call_result
from hooks.coding_agents.hook_answers import HookAnswer
from hooks.coding_agents.hook_bodies import HookBody, read_hook_body
from hooks.coding_agents.hook_events import (
    AFTER_CALL,
    NOT_RUN,
    PERMISSION_REQUEST,
    Client,
    HookEvent,
    HookNotUsable,
    build_hook_event,
    is_before_call,
)
from hooks.coding_agents.hook_sessions import ensure_session
from hooks.coding_agents.planned_calls import HookOptions
from ledger.circuit_breakers import CircuitOpen
from ledger.tools.shell_mapping import load_shell_mapping
from sessions.capacity import PlansThrottled

log = structlog.get_logger("gatebook.hooks")
MAX_ARGUMENT_BYTES: Final = endpoint.ITEM_BYTES
_UNAVAILABLE: Final = (
    "Gatebook's database is not available. Try the call again, and tell an administrator if it"
    " stays so."
)
_FAILED: Final = "Gatebook failed on this hook. The server's log has the cause."
_TOO_LARGE: Final = (
    f"The call's arguments have more than {MAX_ARGUMENT_BYTES} bytes, which Gatebook does not"
    " store. Split the call, for example write the file in parts."
)


def make_hook_endpoint(client: Client) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return the endpoint for the hooks of one client."""

    def answer_hook(request: HttpRequest) -> HttpResponseBase:
        """Answer one hook. A call is never answered with an error status."""
        body = HookBody({})
        status = 200
        try:
            if request.method != "POST":
                raise HookNotUsable("Hooks are sent by POST. Check the hook's configuration.")
            call = endpoint.authenticate_request(request)
            body = read_hook_body(request)
            call.arrived()
            return _build_response(_handle_hook(client, call, body))
        except Problem as problem:
            reason, error, status = problem.detail, problem.code, problem.status
        except HookNotUsable as fault:
            reason, error, status = str(fault), "not_usable", 422
        except (DatabaseError, InterfaceError) as fault:
            outages.drop_read_only_connection(outages.classify_outage(fault))
            reason, error, status = _UNAVAILABLE, f"{type(fault).__name__}: {fault}"[:300], 503
        except Exception as fault:  # a bug must not let a call run
            log.exception("hook_failed", client=client, hook=body.event_name)
            reason, error, status = _FAILED, type(fault).__name__, 500
        if not body.event_name:
            body = read_hook_body(request)
        event = body.event_name
        is_call = not event or is_before_call(event, body.fields)
        log.warning("hook_refused", client=client, hook=event, denied=is_call, error=error)
        is_repeatable = isinstance(body.fields.get("gatebook"), dict)
        if is_repeatable and not is_call and event != PERMISSION_REQUEST:
            return _build_response({"detail": reason}, status)
        answer = hook_answers.build_failure_answer(client, event, reason, is_call=is_call)
        return _build_response(answer)

    answer_hook.csrf_exempt = True  # type: ignore[attr-defined]  # agents carry no cookies
    return answer_hook


claude_code_hook = make_hook_endpoint("claude-code")
codex_hook = make_hook_endpoint("codex")
gemini_hook = make_hook_endpoint("gemini")


def _handle_hook(client: Client, call: Call, body: HookBody) -> dict[str, Any]:
    """Record a hook and return the answer to it. Raises Problem and HookNotUsable."""
    if not body.fields:
        raise HookNotUsable(f"The hook cannot be read. {body.fault}".strip())
    fields = _redact_fields(call, body.fields)
    event = build_hook_event(client, fields, body.fault)
    if is_before_call(event.name, fields):
        return hook_answers.build_call_answer(client, event.name, _decide_call(call, event))
    if event.name in AFTER_CALL | NOT_RUN:
        return hook_answers.build_event_answer(event.name, _record_result(call, event))
    return hook_answers.build_event_answer(event.name, _record_event(call, event))


def _decide_call(call: Call, event: HookEvent) -> HookAnswer:
    """Decide on a call. A call that cannot be stored exactly as it was sent is denied."""
    if event.fault:
        raise HookNotUsable(event.fault)
    intent = build_call_intent(event, load_shell_mapping(call.project))
    if len(to_canonical_text(intent.arguments)) > MAX_ARGUMENT_BYTES:
        raise HookNotUsable(_TOO_LARGE)
    options = _read_options(call, event)

    def decide() -> HookAnswer:
        try:
            return planned_calls.decide_call(call, event, intent, options)
        except (PlansThrottled, CircuitOpen) as pause:
            return planned_calls.describe_pause(pause)

    return _transact(call, decide)


def _record_result(call: Call, event: HookEvent) -> HookAnswer:
    intent = build_call_intent(event, load_shell_mapping(call.project))
    if len(to_canonical_text(intent.arguments)) > MAX_ARGUMENT_BYTES:
        intent = intent._replace(arguments={"left_out": _TOO_LARGE})
    result = read_call_result(event, intent)

    def record() -> HookAnswer:
        return HookAnswer(message=reported_calls.record_result(call, event, intent, result))

    return _transact(call, record)


def _record_event(call: Call, event: HookEvent) -> HookAnswer:
    def record() -> HookAnswer:
        return hook_facts.record_hook_event(call, event, ensure_session(call, event))

    return _transact(call, record)


def _transact(call: Call, work: Callable[[], HookAnswer]) -> HookAnswer:
    """Run `work` in a transaction, again after a lost race. Raises Problem for a refusal."""
    answers: list[HookAnswer] = []

    def run() -> Reply:
        call.received_us = now_us()
        answers[:] = [work()]
        return Reply(200, {})

    reply = endpoint.transact(run, lambda: None)
    if reply.status >= 400:
        raise Problem(reply.status, str(reply.body["code"]), str(reply.body["detail"]))
    return answers[0]


def _redact_fields(call: Call, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without secrets, as everything that agents send is stored."""
    key = call.redaction_key
    if key is None or not redact.might_contain_secret(to_canonical_text(fields)):
        return fields
    redacted, call.redactions = redact.redact_value(fields, key)
    return dict(redacted)


def _read_options(call: Call, event: HookEvent) -> HookOptions:
    """Return how the client is configured. An unknown value is an error of the settings file."""
    permitted = call.request.GET.get("permitted", "ask")
    waiting = call.request.GET.get("waiting", "deny")
    if permitted not in ("ask", "allow"):
        raise HookNotUsable("The hook's URL has an unknown `permitted`. Use `ask` or `allow`.")
    if waiting not in ("deny", "defer"):
        raise HookNotUsable("The hook's URL has an unknown `waiting`. Use `deny` or `defer`.")
    can_defer = event.client == "claude-code"
    return HookOptions(
        allows=permitted == "allow",
        defers=can_defer and (waiting == "defer" or event.facts.get("headless") is True),
        rewrites=event.facts.get("rewrite") is True,
    )


def _build_response(answer: dict[str, Any], status: int = 200) -> HttpResponse:
    response = HttpResponse(
        long_numbers.to_json_bytes(answer, orjson.OPT_PASSTHROUGH_DATACLASS),
        content_type="application/json",
        status=status,
    )
    response["Content-Length"] = str(len(response.content))  # otherwise the server sends chunks
    response["Cache-Control"] = "no-store"
    return response
