"""The one writer of Notice: what of gates, breaches and what is stuck is told to whom, when, and what came of it.

The outbox, written in the transaction of the fact itself, is cut into one notice per channel; a task sends those that
are due. A notice is claimed for a minute before it is sent and marked as sent afterwards, so a kill at any point sends
it again: at least once, and `key` tells the receiver that it is the same. A gate that ended before anybody was told of
it is not told of at all; whoever was told hears how it ended.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import BigIntegerField, ExpressionWrapper, F, Q, QuerySet

from approvals import breach_notices, deadlines, delivery, rulings
from approvals.delivery import Message, Story
from approvals.models import Gate, Vote
from approvals.models_notices import Notice, NoticeChannel
from approvals.states import RISKS
from journal import beating, outbox
from journal.clock import now_us
from journal.models import Entry, Outbox
from journal.text import column_text
from sessions.models import Membership

log = structlog.get_logger("gatebook.notice")

US: Final = 1_000_000
CLAIM_US: Final = 60 * US  # longer than any sending takes
MOST_TRIES: Final = 24  # most of a day
UNSEEN_AT_ONCE: Final = 100  # gates looked at in one run
DIGEST_US: Final = {"medium": 15 * 60 * US, "low": 24 * 3_600 * US}
TOGETHER: Final = (
    "gate.requested",
    "session.stuck",
    "session.recovered",
    "alert.raised",
)  # one message to people carries many
BEFORE_THE_RULING: Final = ("gate.requested", "gate.unseen")


def register() -> None:
    """Take what the outbox holds of gates and breaches. Called once, when the room is made ready."""
    for topic, sender in (("gate.requested", _requested), ("gate.resolved", _resolved), ("integrity", _breach)):
        outbox.register(topic, sender)
    delivery.tellers["integrity"] = breach_notices.telling


def _requested(row: Outbox) -> None:
    gate = _gate_of(row)
    for channel in _channels(row.project, gate.risk).filter(requests=True):
        _write(channel, "gate.requested", row, gate.id, _due(channel, gate.risk))


@transaction.atomic
def _resolved(row: Outbox) -> None:
    gate = _gate_of(row)
    expired = deadlines.current_status(gate, now_us()) == "expired"
    # Who was asked is told, whatever else they listen to; a webhook's receiver asks for itself.
    told = Q(notices__gate=gate.id, notices__topic="gate.requested", notices__tries__gt=0) & ~Q(kind="webhook")
    listens = Q(expiries=True) if expired else Q(rulings=True)
    listens &= Q(minimum_risk__in=RISKS[: RISKS.index(gate.risk) + 1])
    theirs = Q(person__in=_concerned(gate), person__memberships__project=row.project)
    channels = NoticeChannel.objects.filter(listens | told | theirs, project=row.project, enabled=True).distinct()
    for channel in channels:
        _write(channel, "gate.expired" if expired else "gate.resolved", row, gate.id, now_us())
    waiting = Notice.objects.filter(gate=gate.id, topic__in=BEFORE_THE_RULING, state="due", tries=0)
    waiting.update(state="quiet")


def _concerned(gate: Gate) -> set[int]:
    """On whose behalf it was asked, and who voted on it: they hear what became of it, whatever else they listen to."""
    voters = Vote.objects.filter(gate=gate).values_list("user", flat=True)
    return {*voters, *([gate.requester_id] if gate.requester_id is not None else [])}


def _breach(row: Outbox) -> None:
    for channel in NoticeChannel.objects.filter(project=row.project, enabled=True, breaches=True):
        _write(channel, "integrity", row, None, now_us())


def tell_stuck(row: Outbox, owners: Collection[int], gate: UUID | None = None) -> None:
    """Let those hear who listen for what is stuck, and those `owners` (users) of it who have an address of their own.

    Where it is a request that waits, whoever was told that nobody has opened it has heard of it.
    """
    theirs = Q(person__in=owners, person__memberships__project=row.project)
    listening = NoticeChannel.objects.filter(Q(stuck=True) | theirs, project=row.project, enabled=True)
    if gate is not None:
        unseen = Notice.objects.filter(gate=gate, topic="gate.unseen", state__in=("due", "sent"))
        listening = listening.exclude(id__in=unseen.values("channel"))
    for channel in listening.distinct():
        _write(channel, "session.stuck", row, None, now_us())


@transaction.atomic
def tell_recovered(row: Outbox, alert: str) -> None:
    """Let those hear who were told of `alert`, the deduplication key of what tell_stuck told; nobody else."""
    told = Q(notices__key=alert, notices__tries__gt=0)
    for channel in NoticeChannel.objects.filter(told, project=row.project, enabled=True).distinct():
        _write(channel, "session.recovered", row, None, now_us(), key=f"over:{alert}")
    waiting = Notice.objects.filter(channel__project=row.project, key=alert, state="due", tries=0)
    waiting.update(state="quiet")


def tell_of(row: Outbox, topic: str, listening: QuerySet[NoticeChannel]) -> None:
    """Let the channels hear of `topic` that a room above says are to hear of it."""
    for channel in listening:
        _write(channel, topic, row, None, now_us())


def try_out(channel: NoticeChannel, position: int) -> None:
    """Send a notice that says nothing but that it arrived; `position` is the entry that noted the wish."""
    Notice.objects.create(
        project_id=channel.project_id,
        channel=channel,
        topic="test",
        key=f"test:{position}",
        position=position,
        due_at_us=now_us(),
    )


def _gate_of(row: Outbox) -> Gate:
    """The gate that an outbox row speaks of: its id stands in the key, after the topic."""
    return Gate.objects.get(project=row.project, id=UUID(hex=row.deduplication_key.split(":")[1]))


def _channels(project: UUID, risk: str) -> QuerySet[NoticeChannel]:
    covered = RISKS[: RISKS.index(risk) + 1]
    return NoticeChannel.objects.filter(project=project, enabled=True, minimum_risk__in=covered)


def _due(channel: NoticeChannel, risk: str) -> int:
    """At once, or for people and lesser risks with the next digest."""
    now = now_us()
    period = DIGEST_US.get(risk)
    return now if period is None or channel.kind == "webhook" else (now // period + 1) * period


def _write(channel: NoticeChannel, topic: str, row: Outbox, gate: UUID | None, due_at_us: int, key: str = "") -> None:
    """Once per channel and key, however often the outbox hands it over; the key is the outbox's where none is given."""
    values = {"topic": topic, "position": row.entry_id, "gate": gate, "due_at_us": due_at_us}
    values["project_id"] = channel.project_id
    Notice.objects.get_or_create(channel=channel, key=key or row.deduplication_key, defaults=values)


@beating.watched("notices")
def send_due(most: int = 200) -> int:
    """Send what is due and return how many notices went out."""
    _look_for_unseen()
    # Digests are due at whole multiples of their period; every other first delivery is due at once.
    at_once = ~Q(into_digest=0)
    due = Notice.objects.alias(into_digest=F("due_at_us") % min(DIGEST_US.values())).filter(
        outbox.is_due(now_us(), claim_us=CLAIM_US, first=at_once), state="due"
    )
    sent = 0
    for group in _grouped(due.select_related("channel__project").order_by("due_at_us", "id")[:most]):
        claimed = [notice for notice in group if _claim(notice)]
        if claimed:
            sent += _send(claimed)
    return sent


def _grouped(due: Iterable[Notice]) -> Iterable[list[Notice]]:
    """What one message can carry: to the same people of one topic together, to programs each alone."""
    groups: dict[tuple[object, ...], list[Notice]] = {}
    for notice in due:
        together = notice.topic in TOGETHER and notice.channel.kind != "webhook"
        groups.setdefault((notice.channel_id, notice.topic) if together else (notice.pk,), []).append(notice)
    return groups.values()


def _claim(notice: Notice) -> bool:
    """Take a notice for a minute; False when another worker was quicker."""
    known = Notice.objects.filter(id=notice.id, state="due", tries=notice.tries)
    if not known.update(tries=F("tries") + 1, due_at_us=now_us() + CLAIM_US):
        return False
    notice.tries += 1
    return True


def _send(claimed: list[Notice]) -> int:
    channel, stories = claimed[0].channel, []
    for notice in list(claimed):
        story = _story(notice) if channel.enabled else None
        if story is None:
            _mark(notice, state="quiet")
            claimed.remove(notice)
        else:
            stories.append(story)
    if not claimed:
        return 0
    to_file = channel.kind == "email" and delivery.mail_becomes_files()
    try:
        delivery.deliver(channel, Message(claimed[0].topic, stories))
    except Exception as error:  # whatever the receiver did, others are to hear and this one is tried again
        log.warning("notice_failed", channel=str(channel.id), kind=channel.kind, error=type(error).__name__)
        for notice in claimed:
            _mark(notice, **_after_failure(notice, error))
        return 0
    for notice in claimed:
        _mark(notice, state="sent", sent_at_us=now_us(), to_file=to_file, last_error="")
    return len(claimed)


def _after_failure(notice: Notice, error: Exception) -> dict[str, Any]:
    said = column_text((str(error) or type(error).__name__).encode(errors="replace").decode())[:200]
    if notice.tries >= MOST_TRIES:
        return {"state": "failed", "last_error": said}
    return {"due_at_us": now_us() + outbox.wait_us(notice.tries), "last_error": said}


def _mark(notice: Notice, **values: Any) -> None:
    """Guarded by the claim: whoever claimed it since has the word."""
    Notice.objects.filter(id=notice.id, state="due", tries=notice.tries).update(**values)


def _story(notice: Notice) -> Story | None:
    """What there is to tell; None when it is over and nobody was told that it began."""
    if notice.gate is None:
        entry = Entry.objects.get(position=notice.position)
        teller = delivery.tellers.get(notice.topic)
        telling = teller(entry) if teller is not None else None
        over = teller is not None and telling is None
        return None if over else Story(notice.topic, notice.key, entry=entry, telling=telling)
    gate = Gate.objects.select_related("agent", "effect").get(id=notice.gate)
    status = deadlines.current_status(gate, now_us())
    if notice.topic in BEFORE_THE_RULING and status != "pending":
        return None
    return Story(notice.topic, notice.key, gate=gate, status=status)


def _look_for_unseen() -> None:
    """When half of a gate's time has passed and nobody who may rule has opened it, say so, once."""
    now = now_us()
    # Left to itself Django takes a sum for four bytes, and PostgreSQL would be sent the rest of the number.
    both = ExpressionWrapper(F("requested_at_us") + F("decide_by_us"), output_field=BigIntegerField())
    # Only gates that some channel hears of: those nobody asked about would else stand before the others for ever.
    heard = Q(pk__in=())
    for number, risk in enumerate(RISKS):
        listening = NoticeChannel.objects.filter(enabled=True, requests=True, minimum_risk=risk)
        heard |= Q(project__in=listening.values("project"), risk__in=RISKS[number:])
    half_gone = (
        Gate.objects.alias(both_ends=both)
        .filter(heard, status="pending", decide_by_us__gt=now, both_ends__lte=2 * now)
        .exclude(id__in=Notice.objects.filter(topic="gate.unseen").values("gate"))
        .order_by("decide_by_us", "id")
    )
    for gate in half_gone.select_related("effect")[:UNSEEN_AT_ONCE]:
        seen = _was_seen(gate)
        for channel in _channels(gate.project_id, gate.risk).filter(requests=True):
            Notice.objects.get_or_create(
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


def _was_seen(gate: Gate) -> bool:
    looks = Entry.objects.filter(effect=gate.effect_id, kind="access.viewed", subject=gate.id)
    names = set(looks.values_list("actor", flat=True))
    people = Membership.objects.filter(project=gate.project_id, user__person__pseudonym__in=names)
    return any(rulings.eligible(gate, person).refusal is None for person in people.select_related("user"))


def latest(project: UUID, most: int = 30) -> QuerySet[Notice]:
    """The latest notices of a project, for the page."""
    return Notice.objects.filter(channel__project=project).select_related("channel").order_by("-id")[:most]
