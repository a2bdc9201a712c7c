"""Gate statuses and transitions; constraints and triggers are built from them."""

from typing import Final

from ledger.states import RISKS as RISKS

# Status -> next statuses. A status that is not a key is final.
GATE_TRANSITIONS: Final[dict[str, tuple[str, ...]]] = {
    "pending": (
        "approved",
        "denied",
        "denied_session",
        "changes_requested",
        "expired",
        "cancelled",
    ),
    "approved": ("used", "expired_unused", "revoked", "cancelled"),
}
OPEN_STATUSES: Final = tuple(GATE_TRANSITIONS)
FINAL_STATUSES: Final = (
    "used",
    "denied",
    "denied_session",
    "changes_requested",
    "expired",
    "expired_unused",
    "revoked",
    "cancelled",
)
GATE_STATUSES: Final = (*OPEN_STATUSES, *FINAL_STATUSES)
APPROVED_STATUSES: Final = (
    "approved",
    "used",
    "expired_unused",
    "revoked",
)  # the quorum approved at some time

# Status of the gate -> the effect's (permission, basis).
PERMISSION_OF_STATUS: Final[dict[str, tuple[str, str]]] = {
    "pending": ("pending", "policy"),
    "approved": ("granted", "ruling"),
    "denied": ("denied", "ruling"),
    "denied_session": ("denied", "ruling"),
    "expired": ("denied", "expired"),
    "changes_requested": ("none", "changes_requested"),
    "expired_unused": ("none", "expired_unused"),
    "revoked": ("none", "revoked"),
    "cancelled": ("none", "cancelled"),
}
VOTE_ANSWERS: Final = ("approve", "deny", "deny_session", "request_changes")
POLICY_MODES: Final = ("observe", "enforce")
STEP_UPS: Final = ("none", "reauth", "typed_digest")  # from the laxest to the strictest
RATIONALES: Final = ("none", "on_deny", "always")
HIGH_RISKS: Final = ("high", "critical")  # approval needs the typed code, whatever the rule says
PASSWORD_VALID_S: Final = 5 * 60  # how long a typed password counts
UNDO_S: Final = 5  # how long a person can take back an answer
MIN_REASON_CHARS: Final = 3  # minimum length of any reason, in characters

# Why a gate ended; shown to people and, as `reason`, to agents.
GATE_END_REASONS: Final = (
    "",
    "by_agent",  # the requesting agent cancelled it
    "session_ended",
    "superseded",  # the effect was withdrawn, or reported as withdrawn
    "bypassed",  # evidence shows that the effect ran without approval
    "happened",  # an earlier attempt turned out to have happened
    "denied_session",  # the same action was denied for the session
    "digest_mismatch",
    "precondition_changed",
    "requirement_changed",
    "quorum_lost",  # not enough approvers may still vote
    "by_person",
    "undone",  # the person took the answer back at once; a new request took its place
)

US: Final = 1_000_000
DEFAULT_DECIDE_WITHIN_S: Final = 3600
MAX_DECIDE_WITHIN_S: Final = 30 * 24 * 3600
DEFAULT_VALID_FOR_S: Final = 600
MAX_VALID_FOR_S: Final = 24 * 3600

ADDRESSEE_RELATIONS: Final = ("assigned", "mentioned")

# Notifications.
CHANNEL_KINDS: Final = ("email", "slack", "webhook")
NOTIFICATION_TOPICS: Final = (
    "gate.requested",
    "gate.unseen",
    "gate.resolved",
    "gate.expired",
    "gate.addressed",
    "session.stuck",
    "session.recovered",
    "alert.raised",
    "alert.stopped",
    "integrity",
    "test",
)
# quiet: the subject ended before the notification was sent.
NOTIFICATION_STATES: Final = ("due", "sent", "quiet", "failed")
