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


def refuse_wrong_state(row: EffectRow) -> Refusal:
    """Return the refusal of a command that the current state does not allow."""
    sentence = (
        f"This command does not apply in state {row.state}."
        " Read the effect and decide from its current state."
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
