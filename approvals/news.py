"""Changes of a request while its page is open: poll mark and text."""

from approvals import stops, words
from approvals.models import Gate, Vote
from approvals.states import OPEN
from journal.clock import now_us

_DECIDING_ANSWERS = {  # status -> the answer of the vote that decided it
    "approved": "approve",
    "used": "approve",
    "denied": "deny",
    "denied_final": "deny_final",
    "returned": "return",
}


def mark(gate: Gate) -> str:
    """Return the poll mark of `gate`: version, status, effect change, stop."""
    stop = stops.covering(gate)
    return f"{gate.version}-{gate.status}-{gate.effect.changed_us}-{stop.id.hex if stop else ''}"


def ended(gate: Gate) -> str:
    """Describe how a request ended: who decided what, how long ago.

    Empty while pending.
    """
    if gate.status == "pending":
        return ""
    ago = words.age(gate.ended_at_us or gate.decided_at_us or gate.decide_by_us, now_us())
    if gate.status in _DECIDING_ANSWERS:
        by = Vote.objects.filter(gate=gate, answer=_DECIDING_ANSWERS[gate.status]).select_related(
            "user"
        )
        last = by.order_by("-position").first()
        name = last.user.get_username() if last is not None else "Somebody"
        ago = words.age(gate.decided_at_us or gate.decide_by_us, now_us())
        used = " The agent has used the approval." if gate.status == "used" else ""
        return f"{name} {words.RULED[gate.status]} {ago} ago.{used}"
    if gate.status == "expired":
        return f"This request expired {ago} ago. It was not approved."
    why = words.REASONS.get(gate.reason, "")
    word = words.STATUSES[gate.status][0]
    return f"This request was {word} {ago} ago. {why}".strip()


def since(gate: Gate, shown: str, missing: int) -> str:
    """Describe what changed since the mark `shown`; empty if nothing relevant did."""
    version, _, rest = shown.partition("-")
    status = rest.partition("-")[0]
    if gate.status != "pending":
        return ended(gate) if status in OPEN and status != gate.status else ""
    if version == str(gate.version):
        return ""
    last = Vote.objects.filter(gate=gate).select_related("user").order_by("-position").first()
    if last is None or last.answer != "approve":
        return "The deadline of this request moved."
    needed = f"{missing} more approval{' is' if missing == 1 else 's are'} needed."
    return f"{last.user.get_username()} approved this request. {needed}"
