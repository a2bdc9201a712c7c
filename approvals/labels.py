"""UI labels of statuses, reasons and answers."""

from typing import Final

from accounts import git_refs
from approvals.policies.engine import Requirement
from approvals.policies.labels import WARNED_PROOF_LABELS
from web.templatetags.gatebook import elapsed

UNDO_LABELS: Final[dict[str, str]] = {
    "read": "Nothing to undo.",
    "reversible": "Yes, it can be put back.",
    "compensable": "Not directly; a follow-up action can reverse the effect.",
    "irreversible": "No automatic undo.",
}
TOOL_CLASS_LABELS: Final[dict[str, str]] = {
    "read_only": "Declared read-only.",
    "idempotent": "Safe to repeat: running it twice has the same result.",
    "idempotency_key": "The remote service recognizes repeated requests for some time.",
    "transactional": "The remote service keeps a record, so the outcome can be checked.",
    "probeable": "The result can be checked with the remote service.",
    "compensable": "Can be undone by the remote key or the remote service's reference.",
    "opaque": "If the agent crashes mid-way, a person has to check whether it happened.",
}
REVERSIBILITY_RANKS: Final[dict[str, int]] = {
    "irreversible": 0,
    "compensable": 1,
    "reversible": 2,
    "read": 3,
}
STEP_UP_LABELS: Final[dict[str, str]] = {
    "none": "",
    "reauth": "your password",
    "typed_digest": "the intent code and your password",
}
GIVEN_PROOF_LABELS: Final[dict[str, str]] = {  # with what another person confirmed
    "reauth": "the password",
    "typed_digest": "the intent code and the password",
}
# Status of a gate -> (label, CSS class, shape in the sprite)
STATUS_LABELS: Final[dict[str, tuple[str, str, str]]] = {
    "pending": ("awaiting approval", "is-awaiting", "awaiting"),
    "approved": ("approved, not yet used", "is-ack", "decided"),
    "used": ("approved and used", "is-ack", "decided"),
    "denied": ("denied", "is-failed", "failed"),
    "denied_session": ("denied for this session", "is-failed", "failed"),
    "changes_requested": ("changes requested", "is-compensated", "compensated"),
    "expired": ("expired", "is-planned", "dash"),
    "expired_unused": ("approved, never used", "is-planned", "dash"),
    "revoked": ("approved, then revoked", "is-failed", "stop"),
    "cancelled": ("cancelled", "is-superseded", "superseded"),
}
END_REASON_LABELS: Final[dict[str, str]] = {
    "by_agent": "The agent withdrew its request.",
    "session_ended": "Its session ended.",
    "superseded": "The effect was withdrawn.",
    "bypassed": "The effect ran without approval.",
    "happened": "An earlier attempt turned out to have happened, so no approval is needed.",
    "denied_session": "The same action was denied for the session.",
    "digest_mismatch": "The action no longer matched what people approved.",
    "precondition_changed": "The stated preconditions no longer held.",
    "requirement_changed": "At the dispatch, the policy required more than was approved.",
    "quorum_lost": "Not enough approvers could still vote.",
    "by_person": "A person revoked the approval.",
    "undone": "The reviewer took the answer back, and the request was made again.",
}
UNCOUNTED_LABELS: Final[dict[str, str]] = {  # why an approval does not count
    "no_reviewer": "no longer a reviewer of this project",
    "not_asked": "no longer named by the rule",
    "part_in_it": "now a party (owner or requester), or resolved the effect",
}
VOTE_ANSWER_LABELS: Final[
    dict[str, tuple[str, str]]
] = {  # answer -> (what the voter did, verb of the button)
    "approve": ("approved", "Approve"),
    "deny": ("denied", "Deny"),
    "deny_session": ("denied for this session", "Deny for this session"),
    "request_changes": ("asked for changes", "Ask for changes"),
}
DECISION_LABELS: Final[dict[str, str]] = {  # status -> what the person did who decided it
    "approved": "approved this request",
    "used": "approved this request",
    "denied": "denied this request",
    "denied_session": "denied this request for the session",
    "changes_requested": "asked for changes to this request",
}

REFUSAL_LABELS: Final[dict[str, str]] = {  # status -> what people did who did not approve
    "denied": "denied",
    "denied_session": "denied",
    "changes_requested": "changes requested",
}


def describe_answer_time(status: str, took_us: int, *, is_decided: bool) -> str:
    """Return how long a request waited until it was decided, or ended: denied after 25 min."""
    if is_decided:
        what = REFUSAL_LABELS.get(status, "approved")
    else:
        what = f"{'expired' if status == 'expired' else 'ended'} without a decision"
    return f"{what} after {elapsed(max(0, took_us))}"


def format_age(since_us: int, now_us: int) -> str:
    """Format an age in one unit: 11 min, 3 h, 2 d."""
    seconds = max(0, (now_us - since_us) // 1_000_000)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def describe_aftermath(status: str, state: str, permission: str) -> str:
    """Describe an effect whose request ended unused; empty if its status says it."""
    if state == "superseded":
        return _WITHDRAWN.get(status, "The agent withdrew it.")
    if state == "planned" and status in ("denied", "denied_session"):
        return "Not run. The agent has not withdrawn it yet."
    if state == "planned" and status == "changes_requested" and permission != "pending":
        return "Not run. The agent has not resubmitted yet."
    if state == "planned":
        return "Resubmitted." if permission == "pending" else "Not run."
    return ""


_WITHDRAWN: Final[dict[str, str]] = {
    "denied": "The agent withdrew it after the denial.",
    "denied_session": "The agent withdrew it after the denial.",
    "changes_requested": "The agent withdrew it after changes were requested.",
    "cancelled": "It was withdrawn.",
}


def describe_moved_refs(stored: str) -> str:
    """List the refs that git moves, of an effect's `moved_refs`."""
    if stored == git_refs.ANY_REF:
        return "unknown; treat as any ref of the repository"
    return ", ".join(f"all of {ref}" if "*" in ref else ref for ref in stored.split()) or "unknown"


def describe_approvers(requirement: Requirement) -> str:
    """Name whose approval counts: team-leads, or any reviewer."""
    return " or ".join([*requirement.teams, *requirement.people]) or (
        "reviewer" if requirement.minimum == 1 else "reviewers"
    )


def describe_needs(requirement: Requirement, parties: list[str]) -> str:
    """Describe the requirement; `parties` are the people who may not approve."""
    of = "of " if requirement.teams or requirement.people else ""
    text = f"{requirement.minimum} {of}{describe_approvers(requirement)}"
    if parties:
        text += f" (not {' or '.join(parties)})"
    if requirement.step_up != "none":
        text += f"; with {STEP_UP_LABELS[requirement.step_up]}"
    if requirement.rationale == "always":
        text += "; with a reason"
    if requirement.ticket:
        text += f" that names {requirement.ticket}"
    if requirement.proof_on_warning:
        text += f"; if there is a warning, with {WARNED_PROOF_LABELS[requirement.proof_on_warning]}"
    return text + "."
