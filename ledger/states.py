"""The value tables of the fold, also used for CHECK constraints.

After a change `makemigrations --check` fails until a migration contains it.
"""

from typing import Final

MOVED_PERMISSIONS: Final = ("used", "observed", "bypassed")  # permission of something that happened
IDLE_PERMISSIONS: Final = (
    "none",
    "pending",
    "granted",
    "denied",
)  # nothing may have happened under these
PERMISSIONS: Final = IDLE_PERMISSIONS + MOVED_PERMISSIONS

# State of an effect -> its possible permissions.
PERMISSIONS_OF_STATE: Final[dict[str, tuple[str, ...]]] = {
    "planned": PERMISSIONS,
    "dispatched": MOVED_PERMISSIONS,
    "acknowledged": MOVED_PERMISSIONS,
    "failed": PERMISSIONS,  # after a clean rejection the permission is that of the next attempt
    "compensated": PERMISSIONS,  # its facts may arrive after those of its compensation
    "superseded": PERMISSIONS,
}
REPORTED_OUTCOMES: Final = ("ok", "error", "unknown")
OUTCOMES: Final = ("", *REPORTED_OUTCOMES)
# State of an effect -> its possible outcomes.
OUTCOME_OF_STATE: Final[dict[str, tuple[str, ...]]] = {
    "planned": ("",),
    "dispatched": ("",),
    "acknowledged": ("ok", "error", "unknown"),
    "failed": ("error", "unknown"),
    "compensated": OUTCOMES,
    "superseded": OUTCOMES,
}
STATES: Final = tuple(PERMISSIONS_OF_STATE)
# States in which the intent may still happen.
OPEN_STATES: Final = ("planned", "dispatched", "failed")

# Failure reason -> outcome. Only a clean rejection proves that nothing happened.
OUTCOME_OF_REASON: Final[dict[str, str]] = {
    "rejected": "error",
    "timeout": "unknown",
    "error": "unknown",
}
FAILURE_REASONS: Final = ("", *OUTCOME_OF_REASON)
RESOLUTIONS: Final = ("", "happened", "not_happened", "compensate", "abandoned")
PERMISSION_BASES: Final = (
    "",
    "ruling",
    "policy",
    "exemption",
    "observe",
    "import",
    "cancelled",
    "revoked",
    "expired_unused",
    "changes_requested",
    "expired",
)
# The policy's outcome for a plan; empty if no policy was evaluated.
POLICY_OUTCOMES: Final = ("", "allow", "ask", "deny")
CODE_HOSTS: Final = ("github", "gitlab")  # whose events can confirm an effect
STOP_SCOPES: Final = ("project", "tool", "agent", "session", "effect")

TOOL_CLASSES: Final = (
    "read_only",
    "idempotent",
    "idempotency_key",
    "transactional",
    "probeable",
    "compensable",
    "opaque",
)
REVERSIBILITIES: Final = ("read", "reversible", "compensable", "irreversible")
RISKS: Final = ("low", "medium", "high", "critical")
DEFAULT_REQUEST_LIFETIME_S: Final = 300
DEFAULT_DEADLINE_S: Final = 300
DEFAULT_MAX_ATTEMPTS: Final = 3
DEFAULT_MAX_PROBES: Final = 5
# What a compensation needs: our key, the remote's reference, or "" for none possible.
UNDO_REFERENCES: Final = ("", "key", "reference")
