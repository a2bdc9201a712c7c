"""Words of the desk for what the tables hold as keys."""

from typing import Final

from approvals.requirement import Requirement
from sessions import refs

UNDO: Final[dict[str, str]] = {
    "read": "Nothing to undo.",
    "reversible": "Yes, it can be put back.",
    "compensable": "Only by another action that makes up for it.",
    "irreversible": "No automatic undo.",
}
CLASSES: Final[dict[str, str]] = {
    "read_only": "Declared to change nothing.",
    "natural": "Sets an absolute state: running it again changes nothing more.",
    "keyed": "The remote recognises a repetition for a while.",
    "joint": "The remote keeps a record of it, so that what happened can be found out.",
    "probeable": "What happened can be looked up afterwards.",
    "compensable": "Can be undone under its own key.",
    "opaque": "After a crash only a person can say what became of it.",
}
RANKS: Final[dict[str, int]] = {"irreversible": 0, "compensable": 1, "reversible": 2, "read": 3}
STEP_UPS: Final[dict[str, str]] = {
    "none": "",
    "reauth": "your password",
    "typed_digest": "the code of the intent and your password",
}
# Status of a gate -> (word for people, class, shape in the sprite)
STATUSES: Final[dict[str, tuple[str, str, str]]] = {
    "pending": ("awaiting approval", "is-awaiting", "awaiting"),
    "approved": ("approved, not yet used", "is-ack", "decided"),
    "used": ("approved and used", "is-ack", "decided"),
    "denied": ("denied", "is-failed", "failed"),
    "denied_final": ("denied for good", "is-failed", "failed"),
    "returned": ("returned for changes", "is-compensated", "compensated"),
    "expired": ("expired: not approved", "is-planned", "dash"),
    "lapsed": ("approved, lapsed unused", "is-planned", "dash"),
    "revoked": ("approved, then revoked", "is-failed", "stop"),
    "cancelled": ("cancelled", "is-superseded", "superseded"),
}
REASONS: Final[dict[str, str]] = {
    "by_agent": "The agent withdrew its request.",
    "session_ended": "Its session ended.",
    "superseded": "The effect was withdrawn.",
    "bypassed": "The effect ran without waiting for an answer.",
    "happened": "An earlier attempt turned out to have been done; nothing was left to ask for.",
    "denied_final": "The same was denied for good meanwhile.",
    "digest_mismatch": "What was to run was no longer what people had seen.",
    "precondition_changed": "The named preconditions no longer held.",
    "requirement_changed": "The policy asked for more by then.",
    "quorum_lost": "Of those who approved it, too few could still rule.",
    "by_person": "A person took the leave back.",
}
UNCOUNTED: Final[dict[str, str]] = {  # why a yes does not count
    "no_reviewer": "no reviewer of this project any more",
    "not_asked": "no longer among those whom the rule asks",
    "part_in_it": "has a part in it by now",
}
ANSWERS: Final[dict[str, tuple[str, str]]] = {  # answer -> (what the voter did, verb of the button)
    "approve": ("approved", "Approve"),
    "deny": ("denied", "Deny"),
    "deny_final": ("denied for good", "Deny for good"),
    "return": ("asked for changes", "Ask for changes"),
}


RULED: Final[dict[str, str]] = {  # status -> what the person did who decided it
    "approved": "approved this request",
    "used": "approved this request",
    "denied": "denied this request",
    "denied_final": "denied this request for good",
    "returned": "asked for changes to this request",
}


def age(since_us: int, now_us: int) -> str:
    """An age in one unit: 11 min, 3 h, 2 d."""
    seconds = max(0, (now_us - since_us) // 1_000_000)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def afterwards(status: str, state: str, leave: str) -> str:
    """What became of an effect whose request ended like that without being used; empty where it went another way."""
    if state == "superseded":
        return _GIVEN_UP.get(status, "The agent gave it up.")
    if state == "planned" and status in ("denied", "denied_final"):
        return "It has not run, and the agent has not given it up."
    if state == "planned" and status == "returned" and leave != "pending":
        return "It has not run, and the agent has not asked anew under its key."
    if state == "planned":
        return "It was asked for anew." if leave == "pending" else "It has not run."
    return ""


_GIVEN_UP: Final[dict[str, str]] = {
    "denied": "The agent gave it up after the no.",
    "denied_final": "The agent gave it up after the no.",
    "returned": "The agent gave it up after changes were asked for.",
    "cancelled": "It was withdrawn.",
}


def moved_refs(stored: str) -> str:
    """What git moves, of an effect's `moved_refs`: names, or that it could be any ref."""
    if stored == refs.ANY:
        return "not known from what was sent: treat as any ref of the repository"
    return ", ".join(f"all of {ref}" if "*" in ref else ref for ref in stored.split()) or "unknown"


def who(needed: Requirement) -> str:
    """Whose yes counts: team-leads, or any reviewer."""
    return " or ".join([*needed.teams, *needed.people]) or (
        "reviewer" if needed.minimum == 1 else "reviewers"
    )


def needs(needed: Requirement, parties: list[str]) -> str:
    """The requirement as one sentence. `parties` are the people who may not say yes."""
    count = {1: "one", 2: "two", 3: "three"}.get(needed.minimum, str(needed.minimum))
    named = bool(needed.teams or needed.people)
    text = f"{count} of {who(needed)}" if named else f"{count} {who(needed)}"
    if parties:
        text += f", not {', '.join(parties)}"
    if needed.step_up != "none":
        text += f"; with {STEP_UPS[needed.step_up]}"
    if needed.rationale == "always":
        text += "; with a reason"
    if needed.ticket:
        text += f" that names {needed.ticket}"
    return text + "."
