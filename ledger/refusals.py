"""Refusals of commands on effects: codes and sentences that agents get."""

from typing import Final, NamedTuple

from ledger.store.effect_rows import EffectRow


class Refusal(NamedTuple):
    """A code of docs/reference/api.md, its message, and why permission is missing."""

    code: str
    sentence: str
    reason: str = ""


# Bases of a permission that no longer applies.
GONE_BASES: Final = ("cancelled", "revoked", "expired_unused", "changes_requested")
COMPENSATION_OPEN: Final = Refusal(
    "COMPENSATION_OPEN",
    "Another compensation of this effect is open; finish or supersede it first.",
)
ALREADY_DISPATCHED: Final = Refusal(
    "ALREADY_DISPATCHED",
    "Already dispatched by another process or idempotency key. Do not act."
    " If you know the outcome, acknowledge or fail that attempt.",
    "already_used",
)
ENDED_SESSION_HINT: Final = (
    "The session has ended. Acquire its lease with `to_compensate` to undo earlier effects."
)
SESSION_ENDED_REFUSAL: Final = Refusal(
    "SESSION_ENDED",
    "The session has ended. Open a new session to plan effects. You can still acknowledge or"
    " compensate earlier effects; if the session was leased, acquire a lease with `to_compensate`"
    " first.",
)
STOPPED_REFUSAL: Final = Refusal(
    "STOPPED", "A stop is in force; do not act. Dispatch again after it is lifted."
)
KEY_REUSED: Final = Refusal(
    "key_reuse",
    "This effect key belongs to another tool or other arguments. Use a new key for a new intent.",
)
INTENT_MISSING: Final = Refusal(
    "intent_missing",
    "The intent is missing. Send `arguments`, or the `intent_digest` of the plan's response.",
)
INTENT_CHANGED: Final = Refusal(
    "INTENT_MISMATCH",
    "These arguments differ from the plan. Plan them as a new effect and request permission.",
    "digest_mismatch",
)
PERMISSION_OF_OTHER_AGENT: Final = Refusal(
    "NO_PERMISSION",
    "The permission belongs to another agent. Plan your own effect to request it.",
    "digest_mismatch",
)
ARGUMENTS_CHANGED: Final = Refusal(
    "INTENT_MISMATCH",
    "The `free_text` arguments differ from the plan. Send the planned values or plan again.",
    "digest_mismatch",
)
PLAN_ERASED: Final = Refusal(
    "INTENT_MISMATCH",
    "The plan was erased, so your arguments cannot be compared with it. Plan a new effect.",
    "digest_mismatch",
)
QUORUM_LOST: Final = Refusal(
    "GATE_GONE",
    "The approval is no longer valid: not enough approvers may still vote. Plan the effect again.",
    "quorum_lost",
)
DENIED_FOR_SESSION: Final = Refusal(
    "GATE_DENIED",
    "This action is denied for the rest of the session. Do not act or request it again."
    " Supersede the effect.",
    "denied_session",
)
PLAN_CHANGED: Final = Refusal(
    "INTENT_MISMATCH",
    "The plan differs from what people approved. Plan the effect again.",
    "digest_mismatch",
)
PRECONDITIONS_CHANGED: Final = Refusal(
    "INTENT_MISMATCH",
    "The preconditions differ from the approved ones. Plan again with the current preconditions.",
    "precondition_changed",
)
REQUIREMENT_CHANGED: Final = Refusal(
    "GATE_GONE",
    "The policy now requires more than was approved. Plan the effect again.",
    "requirement_changed",
)
EXEMPTION_REVOKED: Final = Refusal(
    "GATE_GONE", "The exemption was revoked. Plan the effect again.", "revoked"
)
APPROVAL_NEEDED: Final = Refusal(
    "GATE_GONE",
    "The effect now needs approval. Plan it again to request it.",
    "requirement_changed",
)
OWN_PERMISSION_NEEDED: Final = Refusal(
    "NO_PERMISSION",
    "Another attempt needs its own permission. Plan the effect again, then dispatch it.",
    "already_used",
)
COMPENSATION_FIRST: Final = Refusal(
    "COMPENSATION_OPEN",
    "A compensation of this effect is open. Do not act; settle the compensation first.",
)
LEASE_HELD: Final = Refusal(
    "LEASE_HELD",
    "Another worker holds the lease. Do not act. Wait until that lease ends, then acquire it.",
)
NOT_IN_THIS_STATE: Final = Refusal(
    "WRONG_STATE",
    "This command is not allowed in the effect's current state. Read the effect with"
    " GET /effects/{id}, and choose a command that its state allows.",
)


def refuse_undispatched_report(attempt: int) -> Refusal:
    """Return the refusal of an outcome of an attempt that was never dispatched."""
    sentence = (
        f"Attempt {attempt} was never dispatched."
        " Dispatch it first, or report it as evidence to POST /events."
    )
    return Refusal("NOT_DISPATCHED", sentence)


def refuse_undispatched_probe(attempt: int) -> Refusal:
    """Return the refusal of a probe of an attempt that was never dispatched."""
    sentence = (
        f"Attempt {attempt} was never dispatched, so there is nothing to probe."
        " Check the attempt number."
    )
    return Refusal("NOT_DISPATCHED", sentence)


def refuse_compensation(state: str) -> Refusal:
    """Return the refusal to compensate an effect whose state leaves nothing to undo."""
    sentence = (
        f"The effect is {state}, so there is nothing to compensate. Do not plan a compensation."
    )
    return Refusal("WRONG_STATE", sentence)


def refuse_wrong_state(row: EffectRow) -> Refusal:
    """Return the refusal of a command that the current state does not allow."""
    sentence = (
        f"This command is not allowed in state {row.state}. Read the effect with"
        " GET /effects/{id}, and choose a command that its state allows."
    )
    return Refusal("WRONG_STATE", sentence)


def refuse_without_permission(row: EffectRow) -> Refusal:
    """Return the refusal that fits the effect's permission."""
    if row.permission == "pending":
        return Refusal("GATE_PENDING", "Approval is pending. Wait, then retry.", "not_resolved")
    if row.permission == "denied" and row.permission_basis == "expired":
        sentence = (
            "The approval request expired. Do not act. Supersede the effect or plan a new one."
        )
        return Refusal("GATE_EXPIRED", sentence, "expired")
    if row.permission == "denied":
        sentence = "Approval was denied. Do not act. Supersede the effect or plan a new one."
        return Refusal("GATE_DENIED", sentence, "denied")
    if row.permission_basis in GONE_BASES:
        basis = row.permission_basis.replace("_", " ")
        sentence = (
            f"The permission no longer applies ({basis}). Do not act."
            " Plan the effect again to request approval."
        )
        return Refusal("GATE_GONE", sentence, row.permission_basis)
    sentence = "This effect has no permission. Plan it again, and act only on `proceed`."
    return Refusal("NO_PERMISSION", sentence, "not_resolved")


def refuse_stale_lease(sentence: str, session_ended: bool) -> Refusal:
    """Return the refusal of a command whose lease epoch is not the current one."""
    return Refusal("LEASE_LOST", f"{sentence} {ENDED_SESSION_HINT}" if session_ended else sentence)


def describe_open_circuit(failures: int) -> str:
    """Return the sentence of BREAKER_OPEN, the pause of a tool after repeated failures."""
    return (
        f"Circuit open: this tool failed {failures} times in a row."
        " One trial plan is allowed after Retry-After. Other work may continue."
    )
