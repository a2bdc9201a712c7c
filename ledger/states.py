"""The value tables of the fold, also used for CHECK constraints.

After a change `makemigrations --check` fails until a migration contains it.
"""

from typing import Final

MOVED: Final = ("used", "observed", "bypassed")  # permission of something that happened
STILL: Final = ("held", "pending", "granted", "refused")  # nothing may have happened under these
LEAVES: Final = STILL + MOVED

# State of an effect -> its possible permissions.
LEAVE_OF_STATE: Final[dict[str, tuple[str, ...]]] = {
    "planned": LEAVES,
    "dispatched": MOVED,
    "acknowledged": MOVED,
    "failed": LEAVES,  # after a clean rejection the permission is that of the next attempt
    "compensated": LEAVES,  # its facts may arrive after those of its compensation
    "superseded": LEAVES,
}
SAID_OUTCOMES: Final = ("ok", "error", "unknown")
OUTCOMES: Final = ("", *SAID_OUTCOMES)
# State of an effect -> its possible outcomes.
OUTCOME_OF_STATE: Final[dict[str, tuple[str, ...]]] = {
    "planned": ("",),
    "dispatched": ("",),
    "acknowledged": ("ok", "error", "unknown"),
    "failed": ("error", "unknown"),
    "compensated": OUTCOMES,
    "superseded": OUTCOMES,
}
STATES: Final = tuple(LEAVE_OF_STATE)
# States in which the intent may still happen.
OPEN: Final = ("planned", "dispatched", "failed")

# Failure reason -> outcome. Only a clean rejection proves that nothing happened.
OUTCOME_OF_REASON: Final[dict[str, str]] = {
    "rejected": "error",
    "timeout": "unknown",
    "error": "unknown",
}
REASONS: Final = ("", *OUTCOME_OF_REASON)
RESOLUTIONS: Final = ("", "happened", "not_happened", "compensate", "abandoned")
BASES: Final = (
    "",
    "ruling",
    "policy",
    "exemption",
    "observe",
    "import",
    "cancelled",
    "revoked",
    "lapsed",
    "returned",
    "expired",
)
# The policy's outcome for a plan; empty if no policy was evaluated.
JUDGED: Final = ("", "allow", "ask", "deny")
HOLD_SCOPES: Final = ("project", "tool", "agent", "session", "effect")

TOOL_CLASSES: Final = (
    "read_only",
    "natural",
    "keyed",
    "joint",
    "probeable",
    "compensable",
    "opaque",
)
REVERSIBILITIES: Final = ("read", "reversible", "compensable", "irreversible")
DEFAULT_REQUEST_LIFETIME_S: Final = 300
DEFAULT_DEADLINE_S: Final = 300
DEFAULT_MAX_ATTEMPTS: Final = 3
DEFAULT_MAX_PROBES: Final = 5
# What a compensation needs: our key, the remote's reference, or "" for none possible.
UNDOES: Final = ("", "key", "reference")
