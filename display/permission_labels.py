"""Words for a permission with its basis, alike in lists, on pages and in the life of an effect."""

from typing import Final

from ledger.models import Effect

_UNASKED: Final = "no person was asked"
# Permission and basis -> words where they say more than the two names.
_LABELS: Final = {
    ("granted", "policy"): "granted by policy",
    ("used", "policy"): "used, granted by policy",
    ("denied", "policy"): "denied by policy",
    ("denied", "expired"): "expired, no answer",
}
_STEPS: Final = {
    ("granted", "policy"): f"permission granted: {_UNASKED}",
    ("used", "policy"): f"permission used: {_UNASKED}",
    ("granted", "exemption"): "permission granted: exemption",
    ("used", "exemption"): "permission used: exemption",
    ("denied", "ruling"): "approval denied",
    ("denied", "expired"): "request expired",
}


def describe_permission(permission: str, basis: str) -> str:
    """Return a permission with its basis: used, granted by policy."""
    label = _LABELS.get((permission, basis))
    named = f"{permission}, {basis.replace('_', ' ')}" if basis else permission
    return label or named


def describe_permission_step(permission: str, basis: str) -> str:
    """Return the permission as a step of an effect's life."""
    return _STEPS.get((permission, basis), f"permission {permission}")


def describe_let_through(effect: Effect, *, is_gated: bool) -> str:
    """Return which rule let an effect through without a request; empty for others."""
    if is_gated or effect.permission in ("none", "pending", "denied", "bypassed"):
        return ""
    rule = effect.policy_rule
    if effect.permission_basis == "exemption":
        return f"An exemption suspended the rule {rule}: no approval was required."
    if rule.endswith("/"):
        return "No rule asks anybody about this call, so it was allowed."
    if effect.permission_basis == "observe" and effect.policy_outcome in ("ask", "deny"):
        return (
            f"The rule {rule} would have held it, but the project only observes:"
            " no approval was required."
        )
    if effect.policy_outcome == "allow":
        return f"The rule {rule} allowed it without asking anybody."
    return "No policy was in force, so no approval was required."
