"""The tables of a gate's life, which are also the schema: constraints and triggers are built from them."""

from typing import Final

# Status -> what it may become. A status that is not a key here is an end.
MOVES: Final[dict[str, tuple[str, ...]]] = {
    "pending": ("approved", "denied", "denied_final", "returned", "expired", "cancelled"),
    "approved": ("used", "lapsed", "revoked", "cancelled"),
}
OPEN: Final = tuple(MOVES)
ENDS: Final = (
    "used",
    "denied",
    "denied_final",
    "returned",
    "expired",
    "lapsed",
    "revoked",
    "cancelled",
)
STATUSES: Final = (*OPEN, *ENDS)
GIVEN: Final = ("approved", "used", "lapsed", "revoked")  # the quorum said yes at some time

# What an effect's leave becomes with its gate: (leave, basis).
LEAVE_OF: Final[dict[str, tuple[str, str]]] = {
    "pending": ("pending", "policy"),
    "approved": ("granted", "ruling"),
    "denied": ("refused", "ruling"),
    "denied_final": ("refused", "ruling"),
    "expired": ("refused", "expired"),
    "returned": ("held", "returned"),
    "lapsed": ("held", "lapsed"),
    "revoked": ("held", "revoked"),
    "cancelled": ("held", "cancelled"),
}
ANSWERS: Final = ("approve", "deny", "deny_final", "return")
OUTCOMES: Final = ("allow", "ask", "deny")  # from the laxest to the strictest
MODES: Final = ("observe", "enforce")
STEP_UPS: Final = ("none", "reauth", "typed_digest")  # from the laxest to the strictest
RATIONALES: Final = ("none", "on_deny", "always")
RISKS: Final = ("low", "medium", "high", "critical")
GRAVE: Final = ("high", "critical")  # a yes at these takes the typed code, whatever the rule says
PASSWORD_COUNTS_S: Final = 5 * 60  # how long a password proves who is at the page
LEAST_REASON: Final = 3  # characters of any reason

# Why a gate ended, beside its status; shown to people and, as `reason`, to agents.
REASONS: Final = (
    "",
    "by_agent",  # its requester cancelled it
    "session_ended",
    "superseded",  # the effect was withdrawn, or somebody reported that it was
    "bypassed",  # evidence shows that it ran without waiting
    "happened",  # an attempt before turned out to have been the one: there is nothing left to ask for
    "denied_final",  # people denied the same for good meanwhile
    "digest_mismatch",
    "precondition_changed",
    "requirement_changed",
    "quorum_lost",  # too few of those who approved may still rule
    "by_person",
)

US: Final = 1_000_000
DEFAULT_DECIDE_WITHIN_S: Final = 3600
LONGEST_DECIDE_WITHIN_S: Final = 30 * 24 * 3600
DEFAULT_LEAVE_FOR_S: Final = 600
LONGEST_LEAVE_FOR_S: Final = 24 * 3600

# Notices.
CHANNEL_KINDS: Final = ("email", "slack", "webhook")
NOTICE_TOPICS: Final = (
    *("gate.requested", "gate.unseen", "gate.resolved", "gate.expired"),
    *("session.stuck", "session.recovered", "alert.raised", "alert.stopped", "integrity", "test"),
)
NOTICE_STATES: Final = (
    "due",
    "sent",
    "quiet",
    "failed",
)  # quiet: it had ended before anybody was told
