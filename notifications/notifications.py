"""The one writer of Notification: notifications of gates, violations, stuck alerts.

The outbox row, written in the transaction of its fact, becomes one notification per channel; a job
sends those that are due. A notification is claimed for one minute before it is sent and marked as
sent afterwards. A kill at any point sends it again: delivery is at least once, and receivers
deduplicate by `key`. Nothing is sent for a gate that ended before its notification went out;
recipients of a notification also get the decision.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import BigIntegerField, ExpressionWrapper, F, Q, QuerySet

from accounts.models import SAMPLE_IDS, Membership
from approvals.gates import comments, gates
from approvals.gates.statuses import RISKS
from approvals.models import Gate, Vote
from approvals.review_settings import load_absences, redirect_users
from approvals.voting.eligibility import check_eligibility
from db import jobs
from db.clock import now_us
from db.text import to_column_text
from journal import outbox
from journal.models import Entry, Outbox
from notifications import daily_digest, delivery, message_text
from notifications.message_text import NotificationItem, OutgoingMessage
from notifications.models import Notification, NotificationChannel

log = structlog.get_logger("gatebook.notifications")

US: Final = 1_000_000
CLAIM_US: Final = 60 * US  # longer than any delivery takes
MAX_DELIVERY_TRIES: Final = 24  # over most of a day
MAX_UNSEEN_PER_RUN: Final = 100  # gates per run
DIGEST_PERIODS_US: Final = {"medium": 15 * 60 * US, "low": 24 * 3_600 * US}
# Topics of which one message to people carries many.
DIGEST_TOPICS: Final = ("gate.requested", "session.stuck", "session.recovered", "alert.raised")
PENDING_TOPICS: Final = ("gate.requested", "gate.unseen")
# What one session causes so soon after its first notification joins the next message to people.
SESSION_WINDOW_US: Final = 60 * US
HASTE_US: Final = 15 * 60 * US  # a request that must be decided sooner is never delayed
_RECENT: Final = 50  # notifications of a channel that are compared


def notify_requested(row: Outbox) -> None:
    """Notify the channels of a new request."""
    gate = _load_gate(row)
    for channel in _redirect_channels(
        row.project, _channels_for_risk(row.project, gate.risk).filter(requests=True)
    ):
        due_us = _due_time_us(channel, gate.risk)
        if gate.risk == "high" and not _is_urgent(gate):
            due_us = _find_session_due_us(channel, gate.session_id, now_us(), waits=True)
        _write_notification(channel, "gate.requested", row, gate.id, due_us)


@transaction.atomic
def notify_resolved(row: Outbox) -> None:
    """Notify channels of the end of a request."""
    gate = _load_gate(row)
    expired = gates.current_gate_status(gate, now_us()) == "expired"
    # Recipients of the request get the decision, whatever topics they chose; webhooks do not.
    asked_before = Q(
        notifications__gate=gate.id,
        notifications__topic="gate.requested",
        notifications__tries__gt=0,
    ) & ~Q(kind="webhook")
    listens = Q(expiries=True) if expired else Q(rulings=True)
    listens &= Q(minimum_risk__in=RISKS[: RISKS.index(gate.risk) + 1])
    theirs = Q(person__in=_concerned_users(gate), person__memberships__project=row.project)
    channels = NotificationChannel.objects.filter(
        listens | asked_before | theirs, project=row.project, enabled=True
    ).distinct()
    for channel in channels:
        now = now_us()
        due_us = now if _is_urgent(gate) else _find_session_due_us(channel, gate.session_id, now)
        _write_notification(
            channel, "gate.expired" if expired else "gate.resolved", row, gate.id, due_us
        )
    waiting = Notification.objects.filter(
        gate=gate.id, topic__in=PENDING_TOPICS, state="due", tries=0
    )
    waiting.update(state="quiet")


def _redirect_channels(
    project: UUID, channels: Iterable[NotificationChannel]
) -> list[NotificationChannel]:
    """Return the channels, with those of a stand-in in place of those of a person who is away.

    Every request is sent: without a stand-in, or a channel of theirs, the first channel stays.
    """
    listed, absences = list(channels), load_absences(project)
    redirected = {channel.pk: channel for channel in listed}
    for channel in listed:
        absence = absences.get(channel.person_id) if channel.person_id is not None else None
        theirs = (
            NotificationChannel.objects.filter(
                project=project, person=absence.stand_in, enabled=True
            )
            if absence is not None and absence.stand_in is not None
            else ()
        )
        if theirs:
            del redirected[channel.pk]
            redirected |= {other.pk: other for other in theirs}
    return list(redirected.values())


def notify_addressed(row: Outbox) -> None:
    """Notify the people whom a comment mentions, or whom a request is assigned to."""
    users = redirect_users(
        row.project, comments.list_addressed_users(Entry.objects.get(position=row.entry_id))
    )
    theirs = NotificationChannel.objects.filter(
        person__in=users,
        person__memberships__project=row.project,
        project=row.project,
        enabled=True,
    )
    for channel in theirs.distinct():
        _write_notification(channel, "gate.addressed", row, _load_gate(row).id, now_us())


def _is_urgent(gate: Gate) -> bool:
    """Return whether a notification of the gate must never wait for others."""
    hasty = gate.decide_by_us - gate.requested_at_us <= HASTE_US
    return hasty or gate.risk == "critical" or gate.reversibility == "irreversible"


def _find_session_due_us(
    channel: NotificationChannel, session: UUID, now: int, *, waits: bool = False
) -> int:
    """Return when to send what a session caused: now, or with what it causes soon.

    The first goes out at once, or with `waits` at the end of the window; those that follow within
    the window go out together at its end. Webhooks never wait. At most three queries.
    """
    if channel.kind == "webhook":
        return now
    since = now - SESSION_WINDOW_US
    recent = list(
        Notification.objects.filter(channel=channel)
        .exclude(state__in=("quiet", "failed"))
        .order_by("-id")[:_RECENT]
    )
    recent = [
        row
        for row in recent
        if (row.state == "due" and row.tries == 0 and row.due_at_us <= now + SESSION_WINDOW_US)
        or (row.sent_at_us or 0) > since
    ]
    sessions = _load_sessions(recent)
    begun = [
        row.due_at_us if row.state == "due" else (row.sent_at_us or 0) + SESSION_WINDOW_US
        for row in recent
        if sessions.get(row.pk) == session
    ]
    if begun:
        return max(now, min(begun))
    return now + SESSION_WINDOW_US if waits else now


def _load_sessions(rows: Iterable[Notification]) -> dict[int, UUID]:
    """Return by notification the session that caused it, if it has one. At most two queries."""
    listed = list(rows)
    gates = {row.gate for row in listed if row.gate is not None}
    positions = {row.position for row in listed if row.gate is None}
    of_gate = dict(Gate.objects.filter(id__in=gates).values_list("id", "session")) if gates else {}
    of_entry = (
        dict(
            Entry.objects.filter(position__in=positions, session__isnull=False).values_list(
                "position", "session"
            )
        )
        if positions
        else {}
    )
    found_sessions = {
        row.pk: of_gate.get(row.gate) if row.gate is not None else of_entry.get(row.position)
        for row in listed
    }
    return {key: session for key, session in found_sessions.items() if session is not None}


def _concerned_users(gate: Gate) -> set[int]:
    """Return requester and voters, who get the decision whatever their topics."""
    voters = Vote.objects.filter(gate=gate).values_list("user", flat=True)
    return {*voters, *([gate.requester_id] if gate.requester_id is not None else [])}


def log_for_operator(row: Outbox, event: str, **fields: str | None) -> None:
    """Log a problem in one line of ids. The problems of a sample project are made up: no line."""
    if row.project.int not in SAMPLE_IDS:
        log.warning(
            event,
            project=str(row.project),
            entry=row.entry_id,
            **fields,
            deduplication_key=row.deduplication_key,
        )


def notify_violation(row: Outbox) -> None:
    """Log a violation by ids, and notify the channels of violations."""
    log_for_operator(row, row.topic)
    for channel in NotificationChannel.objects.filter(
        project=row.project, enabled=True, violations=True
    ):
        _write_notification(channel, "integrity", row, None, now_us())


def notify_stuck(row: Outbox, owners: Collection[int], gate: UUID | None = None) -> None:
    """Notify channels of stuck alerts and own addresses of `owners` (user ids).

    For a waiting request (`gate`), skips recipients of its gate.unseen notification.
    """
    theirs = Q(person__in=owners, person__memberships__project=row.project)
    listening = NotificationChannel.objects.filter(
        Q(stuck=True) | theirs, project=row.project, enabled=True
    )
    if gate is not None:
        unseen = Notification.objects.filter(
            gate=gate, topic="gate.unseen", state__in=("due", "sent")
        )
        listening = listening.exclude(id__in=unseen.values("channel"))
    for channel in listening.distinct():
        _write_notification(channel, "session.stuck", row, None, now_us())


@transaction.atomic
def notify_recovered(row: Outbox, alert: str) -> None:
    """Notify the recipients of `alert`, a stuck notification's key, of its end."""
    notified = Q(notifications__key=alert, notifications__tries__gt=0)
    for channel in NotificationChannel.objects.filter(
        notified, project=row.project, enabled=True
    ).distinct():
        _write_notification(channel, "session.recovered", row, None, now_us(), key=f"over:{alert}")
    waiting = Notification.objects.filter(
        channel__project=row.project, key=alert, state="due", tries=0
    )
    waiting.update(state="quiet")


def notify_channels(row: Outbox, topic: str, listening: QuerySet[NotificationChannel]) -> None:
    """Write a notification of `topic` for each of the given channels."""
    for channel in listening:
        _write_notification(channel, topic, row, None, now_us())


def write_test_notification(channel: NotificationChannel, position: int) -> None:
    """Write a test notification; `position` is the entry that recorded the request."""
    Notification.objects.create(
        project_id=channel.project_id,
        channel=channel,
        topic="test",
        key=f"test:{position}",
        position=position,
        due_at_us=now_us(),
    )


def _load_gate(row: Outbox) -> Gate:
    """Load the gate of an outbox row, named in its key after the topic."""
    return Gate.objects.get(project=row.project, id=UUID(hex=row.deduplication_key.split(":")[1]))


def _channels_for_risk(project: UUID, risk: str) -> QuerySet[NotificationChannel]:
    covered = RISKS[: RISKS.index(risk) + 1]
    return NotificationChannel.objects.filter(
        project=project, enabled=True, minimum_risk__in=covered
    )


def _due_time_us(channel: NotificationChannel, risk: str) -> int:
    """Return when to send: now, or with the next digest for people and lower risks."""
    now = now_us()
    period = DIGEST_PERIODS_US.get(risk)
    return now if period is None or channel.kind == "webhook" else (now // period + 1) * period


def _write_notification(
    channel: NotificationChannel,
    topic: str,
    row: Outbox,
    gate: UUID | None,
    due_at_us: int,
    key: str = "",
) -> None:
    """Write one notification per channel and `key`, by default the outbox row's."""
    values = {"topic": topic, "position": row.entry_id, "gate": gate, "due_at_us": due_at_us}
    values["project_id"] = channel.project_id
    Notification.objects.get_or_create(
        channel=channel, key=key or row.deduplication_key, defaults=values
    )


@jobs.record_run("notifications")
def send_due_notifications(most: int = 200) -> int:
    """Send due notifications and return how many were sent."""
    _write_unseen()
    # Digests are due at multiples of their period; all other first deliveries are due within the
    # window of a session, so that a later time means that the clock was set back.
    latest_us = now_us() + SESSION_WINDOW_US + jobs.CLOCK_STEP_US
    at_once = ~Q(into_digest=0) & Q(due_at_us__gt=latest_us)
    due = Notification.objects.alias(
        into_digest=F("due_at_us") % min(DIGEST_PERIODS_US.values())
    ).filter(outbox.due_condition(now_us(), claim_us=CLAIM_US, first=at_once), state="due")
    daily_digest.send_due_digests(now_us())
    sent = 0
    for group in _grouped(
        due.select_related("channel__project").order_by("due_at_us", "id")[:most]
    ):
        claimed = [notification for notification in group if _claim_notification(notification)]
        if claimed:
            sent += _send_group(claimed)
    return sent


def _grouped(due: Iterable[Notification]) -> Iterable[list[Notification]]:
    """Group notifications into messages: for people by topic and by session, else single.

    A message of one topic may be about many sessions. Those about the same single session become
    one message, whatever their topics, except violations.
    """
    listed = list(due)
    sessions = _load_sessions(row for row in listed if row.channel.kind != "webhook")
    groups: dict[tuple[object, ...], list[Notification]] = {}
    for notification in listed:
        together = notification.topic in DIGEST_TOPICS and notification.channel.kind != "webhook"
        groups.setdefault(
            (notification.channel_id, notification.topic) if together else (notification.pk,), []
        ).append(notification)
    messages: dict[tuple[object, ...], list[Notification]] = {}
    for key, group in groups.items():
        caused = {sessions.get(notification.pk) for notification in group}
        (session,) = caused if len(caused) == 1 else (None,)
        if group[0].topic == "integrity":  # its headline names what happened
            session = None
        merged = key if session is None else (group[0].channel_id, session)
        messages.setdefault(merged, []).extend(group)
    return messages.values()


def _claim_notification(notification: Notification) -> bool:
    """Claim a notification for one minute; False if another worker claimed it."""
    unclaimed = Notification.objects.filter(
        id=notification.id, state="due", tries=notification.tries
    )
    if not unclaimed.update(tries=F("tries") + 1, due_at_us=now_us() + CLAIM_US):
        return False
    notification.tries += 1
    return True


def _send_group(claimed: list[Notification]) -> int:
    channel, stories = claimed[0].channel, []
    for notification in list(claimed):
        is_sent = channel.enabled and not channel.project.is_sample
        story = _build_item(notification) if is_sent else None
        if story is None:
            _mark(notification, state="quiet")
            claimed.remove(notification)
        else:
            stories.append(story)
    if not claimed:
        return 0
    to_file = channel.kind == "email" and delivery.is_mail_written_to_files()
    try:
        delivery.deliver_message(channel, OutgoingMessage(claimed[0].topic, stories))
    except Exception as error:  # a failing receiver must not block others; this one is retried
        log.warning(
            "notification_failed",
            channel=str(channel.id),
            kind=channel.kind,
            error=type(error).__name__,
        )
        for notification in claimed:
            _mark(notification, **_failure_update(notification, error))
        return 0
    for notification in claimed:
        _mark(notification, state="sent", sent_at_us=now_us(), to_file=to_file, last_error="")
    return len(claimed)


def _failure_update(notification: Notification, error: Exception) -> dict[str, Any]:
    text = to_column_text((str(error) or type(error).__name__).encode(errors="replace").decode())[
        :200
    ]
    if notification.tries >= MAX_DELIVERY_TRIES:
        return {"state": "failed", "last_error": text}
    return {
        "due_at_us": now_us() + outbox.delivery_delay_us(notification.tries),
        "last_error": text,
    }


def _mark(notification: Notification, **values: Any) -> None:
    """Update a notification unless another worker has claimed it since."""
    Notification.objects.filter(id=notification.id, state="due", tries=notification.tries).update(
        **values
    )


def _build_item(notification: Notification) -> NotificationItem | None:
    """Return the content of a notification; None if its subject has ended."""
    if notification.gate is None:
        entry = Entry.objects.get(position=notification.position)
        teller = message_text.load_text_builder(notification.topic)
        telling = teller(entry) if teller is not None else None
        over = teller is not None and telling is None
        return (
            None
            if over
            else NotificationItem(
                notification.topic, notification.key, entry=entry, telling=telling
            )
        )
    gate = Gate.objects.select_related("agent", "effect").get(id=notification.gate)
    status = gates.current_gate_status(gate, now_us())
    if notification.topic in PENDING_TOPICS and status != "pending":
        return None
    return NotificationItem(notification.topic, notification.key, gate=gate, status=status)


def _write_unseen() -> None:
    """Notify once of gates past half of their time that no eligible person has opened."""
    now = now_us()
    # Without output_field Django types the sum as a 4-byte integer, which overflows on PostgreSQL.
    both = ExpressionWrapper(
        F("requested_at_us") + F("decide_by_us"), output_field=BigIntegerField()
    )
    # Only gates that a channel covers: the others would fill the limit forever.
    has_subscriber = Q(pk__in=())
    for number, risk in enumerate(RISKS):
        listening = NotificationChannel.objects.filter(
            enabled=True, requests=True, minimum_risk=risk
        )
        has_subscriber |= Q(project__in=listening.values("project"), risk__in=RISKS[number:])
    half_gone = (
        Gate.objects.alias(both_ends=both)
        .filter(has_subscriber, status="pending", decide_by_us__gt=now, both_ends__lte=2 * now)
        .exclude(id__in=Notification.objects.filter(topic="gate.unseen").values("gate"))
        .order_by("decide_by_us", "id")
    )
    for gate in half_gone.select_related("effect")[:MAX_UNSEEN_PER_RUN]:
        seen = _has_eligible_view(gate)
        for channel in _channels_for_risk(gate.project_id, gate.risk).filter(requests=True):
            Notification.objects.get_or_create(
                channel=channel,
                key=f"gate.unseen:{gate.id.hex}",
                defaults={
                    "project_id": channel.project_id,
                    "topic": "gate.unseen",
                    "position": gate.opened_position,
                    "gate": gate.id,
                    "due_at_us": now,
                    "state": "quiet" if seen else "due",
                },
            )


def _has_eligible_view(gate: Gate) -> bool:
    looks = Entry.objects.filter(effect=gate.effect_id, kind="access.viewed", subject=gate.id)
    names = set(looks.values_list("actor", flat=True))
    people = Membership.objects.filter(project=gate.project_id, user__person__pseudonym__in=names)
    return any(
        check_eligibility(gate, person).refusal is None for person in people.select_related("user")
    )


def load_latest_notifications(project: UUID, most: int = 30) -> QuerySet[Notification]:
    """Return the latest notifications of a project."""
    return (
        Notification.objects.filter(channel__project=project)
        .select_related("channel")
        .order_by("-id")[:most]
    )
