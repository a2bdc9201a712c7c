"""The tables of the fold, which are also the schema: CHECK constraints are built from them (ledger/models.py).

Editing one makes `makemigrations --check` fail until a migration says the same.
"""

from typing import Final

MOVED: Final = ("used", "observed", "bypassed")  # leave under which something happened
STILL: Final = ("held", "pending", "granted", "refused")  # leave under which nothing may happen yet
LEAVES: Final = STILL + MOVED

# State of an effect -> the leaves it may stand under.
LEAVE_OF_STATE: Final[dict[str, tuple[str, ...]]] = {
    "planned": LEAVES,
    "dispatched": MOVED,
    "acknowledged": MOVED,
    "failed": LEAVES,  # a clean rejection may be asked again: leave then speaks of the next attempt
    "compensated": LEAVES,  # its own facts may arrive after its compensation's
    "superseded": LEAVES,
}
SAID_OUTCOMES: Final = ("ok", "error", "unknown")
OUTCOMES: Final = ("", *SAID_OUTCOMES)
# State of an effect -> the outcomes it may have.
OUTCOME_OF_STATE: Final[dict[str, tuple[str, ...]]] = {
    "planned": ("",),
    "dispatched": ("",),
    "acknowledged": ("ok", "error", "unknown"),
    "failed": ("error", "unknown"),
    "compensated": OUTCOMES,
    "superseded": OUTCOMES,
}
STATES: Final = tuple(LEAVE_OF_STATE)
# states in which an intent may still come to pass
OPEN: Final = (
    "planned",
    "dispatched",
    "failed",
)

# Why an attempt failed -> what is known of the world. Only a clean rejection says that nothing happened.
OUTCOME_OF_REASON: Final[dict[str, str]] = {
    "rejected": "error",
    "timeout": "unknown",
    "error": "unknown",
}
REASONS: Final = ("", *OUTCOME_OF_REASON)
RESOLUTIONS: Final = ("", "happened", "not_happened", "compensate", "abandoned")
BASES: Final = (
    *("", "ruling", "policy", "exemption", "observe", "import"),
    *("cancelled", "revoked", "lapsed", "returned", "expired"),
)
# what the policy in force said of a plan; empty where none was asked
JUDGED: Final = (
    "",
    "allow",
    "ask",
    "deny",
)
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
# what undoing needs: our key, the remote's reference, or there is no way
UNDOES: Final = (
    "",
    "key",
    "reference",
)
