"""Words for a permission with its basis, alike in lists, on pages and in the life of an effect."""

from typing import Final

_UNASKED: Final = "no one asked"
# Permission and basis -> words where they say more than the two names.
_LABELS: Final = {
    ("granted", "policy"): f"granted, policy: {_UNASKED}",
    ("used", "policy"): f"used, policy: {_UNASKED}",
    ("denied", "policy"): f"denied, policy: {_UNASKED}",
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
    """Return a permission with its basis: used, policy: no one asked."""
    label = _LABELS.get((permission, basis))
    named = f"{permission}, {basis.replace('_', ' ')}" if basis else permission
    return label or named


def describe_permission_step(permission: str, basis: str) -> str:
    """Return the permission as a step of an effect's life."""
    return _STEPS.get((permission, basis), f"permission {permission}")
