"""Daily digests by e-mail: what waits for a person, what expired and what was decided.

A member turns it on under their own settings. A digest that cannot be delivered is logged and not
repeated: the next one follows a day later.
"""

from typing import Final

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import Count, Q

from accounts.models import Membership
from approvals import labels
from approvals.inbox import inbox_queries
from approvals.models import Gate, ReviewSettings
from approvals.review_settings import DAY_US, claim_digest, list_due_digests
from notifications.message_text import build_gate_label

log = structlog.get_logger("gatebook.notifications")

MAX_NAMED: Final = 20  # requests in one digest


def send_due_digests(now: int) -> int:
    """Send the digests that are due; return how many had something to say."""
    sent = 0
    for row in list_due_digests(now):
        since = row.digest_sent_us or now - DAY_US
        membership = (
            Membership.objects.filter(project=row.project_id, user=row.user_id)
            .select_related("user", "project")
            .first()
        )
        if not claim_digest(row, now) or membership is None or not membership.user.is_active:
            continue
        lines = None if row.project.is_sample else build_digest(membership, since, now)
        if lines is not None:
            sent += _send_digest(row, *lines)
    return sent


def build_digest(membership: Membership, since: int, now: int) -> tuple[str, list[str]] | None:
    """Return subject and lines of a digest; None if nothing waits and nothing happened."""
    waiting = inbox_queries.load_first_requests(membership, MAX_NAMED, for_member=True)
    gates = Gate.objects.filter(project=membership.project_id)
    ended = Q(ended_at_us__gt=since, ended_at_us__lte=now)
    expired = gates.filter(ended, status="expired").count()
    decided = gates.filter(decided_at_us__gt=since, decided_at_us__lte=now)
    counts = {
        labels.STATUS_LABELS[status][0]: count
        for status, count in decided.order_by()
        .values_list("status")
        .annotate(Count("pk"))
        .order_by("status")
    }
    if not (waiting.count or expired or counts):
        return None
    total = sum(counts.values())
    subject = f"{waiting.count} waiting for you, {expired} expired, {total} decided"
    lines = [f"Project {membership.project.name}. Since the last digest:", ""]
    lines += [f"  {count} {name}" for name, count in counts.items()]
    lines += [f"  {expired} expired without a decision", "", f"{waiting.count} waiting for you:"]
    named = gates.select_related("agent").in_bulk(waiting.gates)
    for identity in waiting.gates:
        gate = named[identity]
        address = f"{settings.GATEBOOK_URL}/approvals/{gate.id}/"
        lines += [f"  {build_gate_label(gate)}", f"  {address}"]
    if waiting.count > len(waiting.gates):
        lines.append(f"  and {waiting.count - len(waiting.gates)} more")
    address = f"{settings.GATEBOOK_URL}/settings/reviewing/"
    return subject, [*lines, "", f"Turn this digest off at {address}"]


def _send_digest(row: ReviewSettings, subject: str, lines: list[str]) -> int:
    try:
        EmailMessage(
            subject=f"Gatebook: {subject}", body="\n".join(lines) + "\n", to=[row.digest_address]
        ).send()
    except Exception as error:  # a failing mail server must not block other notifications
        log.warning("digest_failed", settings=str(row.id), error=type(error).__name__)
        return 0
    return 1
