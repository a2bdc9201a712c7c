"""The answers to hooks, in the JSON that each coding agent reads. Pure.

An answer is always HTTP 200: the clients run the call after any other status.
"""

from typing import Any, Final, Literal, NamedTuple

from hooks.coding_agents.hook_events import PERMISSION_REQUEST, Client

Decision = Literal["none", "allow", "deny", "defer"]
MAX_REASON_CHARACTERS: Final = 4_000
# Events whose answer may add text to what the model reads.
CONTEXT_EVENTS: Final = frozenset({"SessionStart", "UserPromptSubmit", "BeforeAgent"})


class HookAnswer(NamedTuple):
    """What to answer. `none` leaves the decision to the client's own permissions."""

    decision: Decision = "none"
    reason: str = ""
    updated_input: dict[str, Any] | None = None
    context: str = ""  # for the model, after events that take it
    message: str = ""  # for the person at the client


def build_call_answer(client: Client, event: str, answer: HookAnswer) -> dict[str, Any]:
    """Build the answer to a hook before a call."""
    reason = answer.reason[:MAX_REASON_CHARACTERS]
    if client == "gemini":
        if answer.decision in ("deny", "defer"):
            return {"decision": "deny", "reason": reason}
        body: dict[str, Any] = {"decision": "allow"}
        if answer.updated_input is not None:
            body["hookSpecificOutput"] = {
                "hookEventName": event,
                "tool_input": answer.updated_input,
            }
        return body
    output: dict[str, Any] = {"hookEventName": event}
    if answer.decision != "none":
        output["permissionDecision"] = answer.decision
    if reason:
        output["permissionDecisionReason"] = reason
    if answer.updated_input is not None:
        output["updatedInput"] = answer.updated_input
    return {"hookSpecificOutput": output}


def build_event_answer(event: str, answer: HookAnswer) -> dict[str, Any]:
    """Build the answer to any other hook: an empty object where there is nothing to say."""
    body: dict[str, Any] = {}
    if answer.context and event in CONTEXT_EVENTS:
        body["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": answer.context}
    if answer.message:
        body["systemMessage"] = answer.message[:MAX_REASON_CHARACTERS]
    return body


def build_failure_answer(
    client: Client, event: str, reason: str, *, is_call: bool
) -> dict[str, Any]:
    """Build the answer to a hook that Gatebook could not handle: a call is denied.

    An event whose name could not be read may be a call, so that `is_call` is true for it too.
    """
    if is_call:
        reason = f"{reason} Gatebook did not permit this call; nothing was executed."
        return build_call_answer(client, event or "PreToolUse", HookAnswer("deny", reason))
    if event == PERMISSION_REQUEST:
        decision = {"behavior": "deny", "message": reason[:MAX_REASON_CHARACTERS]}
        return {"hookSpecificOutput": {"hookEventName": event, "decision": decision}}
    return build_event_answer(event, HookAnswer(message=f"Gatebook: {reason}"))
