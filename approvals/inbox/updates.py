"""Changes of a request while its page is open: poll mark and text."""

from approvals import labels, stop_rows
from approvals.gates.statuses import OPEN_STATUSES
from approvals.models import Gate, Vote
from db.clock import now_us

_DECIDING_ANSWERS = {  # status -> the answer of the vote that decided it
    "approved": "approve",
    "used": "approve",
    "denied": "deny",
    "denied_session": "deny_session",
    "changes_requested": "request_changes",
}


def poll_mark(gate: Gate) -> str:
    """Return the poll mark of `gate`: version, status, effect change, stop."""
    stop = stop_rows.find_blocking_stop(gate)
    return f"{gate.version}-{gate.status}-{gate.effect.changed_us}-{stop.id.hex if stop else ''}"


def describe_end(gate: Gate) -> str:
    """Describe who ended a request, how and how long ago; empty while pending."""
    if gate.status == "pending":
        return ""
    ago = labels.format_age(gate.ended_at_us or gate.decided_at_us or gate.decide_by_us, now_us())
    if gate.status in _DECIDING_ANSWERS:
        by = Vote.objects.filter(gate=gate, answer=_DECIDING_ANSWERS[gate.status]).select_related(
            "user"
        )
        last = by.order_by("-position").first()
        name = last.user.get_username() if last is not None else "Somebody"
        ago = labels.format_age(gate.decided_at_us or gate.decide_by_us, now_us())
        used = " The agent has used the approval." if gate.status == "used" else ""
        return f"{name} {labels.DECISION_LABELS[gate.status]} {ago} ago.{used}"
    if gate.status == "expired":
        return f"This request expired {ago} ago. It was not approved."
    why = labels.END_REASON_LABELS.get(gate.reason, "")
    word = labels.STATUS_LABELS[gate.status][0]
    return f"This request was {word} {ago} ago. {why}".strip()


def describe_change(gate: Gate, shown: str, missing: int) -> str:
    """Describe what changed since the mark `shown`; empty if nothing relevant did."""
    version, _, rest = shown.partition("-")
    status = rest.partition("-")[0]
    if gate.status != "pending":
        return describe_end(gate) if status in OPEN_STATUSES and status != gate.status else ""
    if version == str(gate.version):
        return ""
    last = Vote.objects.filter(gate=gate).select_related("user").order_by("-position").first()
    if last is None or last.answer != "approve":
        return "The deadline of this request moved."
    needed = f"{missing} more approval{' is' if missing == 1 else 's are'} needed."
    return f"{last.user.get_username()} approved this request. {needed}"
