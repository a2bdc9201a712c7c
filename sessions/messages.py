"""The one writer of Message and Reading: a box for each agent and one for all, in the order of the book.

A message is unread until it is marked, so that a reader that dies between reading and marking finds it again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db.models import Count, Exists, OuterRef, Q

from journal import entries
from journal.clock import now_us
from journal.entries import SYSTEM_SOURCE, Draft, Status
from journal.ids import derived
from journal.models import Body
from sessions import projects
from sessions.models import Agent, Session
from sessions.models_messages import Message, Reading
from sessions.origin import Origin, Repeated
from sessions.people import pseudonym_of
from sessions.refused import RefusedError

SHARED: Final = "shared"  # what the box of all is called; an agent of that name has no box of its own
MOST_CHARACTERS: Final = 16_384  # of a body
MOST_SUBJECT: Final = 200
BOXES: Final = ("mine", "shared")


@dataclass(slots=True)
class Letter:
    """A message with its text, as `agent` finds it. Text is None where it was erased."""

    message: Message
    subject: str | None
    body: str | None
    read_at_us: int | None


def identity(project: UUID, source: str, key: str) -> UUID:
    """The id of the message that this entry sends."""
    return derived(project, "message", source, key)


def send(
    origin: Origin,
    recipient: Agent | None,
    session: UUID | None,
    in_reply_to: UUID | None,
    subject: str,
    body: str,
) -> Message:
    """Send a message by command, to one agent or (None) to all. Raises Repeated."""
    made = identity(origin.project, origin.source, origin.key)
    facts = _facts(recipient, in_reply_to)
    draft = origin.draft("message.sent", facts=facts, session=session, subject=made)
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    return Message.objects.create(
        id=made,
        project_id=origin.project,
        recipient=recipient,
        session_id=session,
        from_agent_id=origin.agent,
        in_reply_to_id=in_reply_to,
        size=_size(subject, body),
        opened_position=appended.position,
        sent_at_us=origin.received_us,
    )


def write(user: User, recipient: Agent, session: Session | None, subject: str, body: str, key: str) -> Message:
    """Send a person's message to an agent; the same `key` of the same person again is the same message.

    Raises RefusedError for an empty or too long text, and in an archive, where nobody reads it.
    """
    projects.expect_life(recipient.project)
    subject, body = subject.strip(), body.replace("\r\n", "\n").strip()
    if not body or len(body) > MOST_CHARACTERS or len(subject) > MOST_SUBJECT:
        raise RefusedError(
            f"A message has 1 to {MOST_CHARACTERS:,} characters, and its subject at most {MOST_SUBJECT}."
        )
    actor = pseudonym_of(user)
    event_id = entries.keyed_digest("message", actor, key)
    said = {"to": recipient.name, "subject": subject, "body": body}
    message, _created = _post(event_id, actor, recipient.project_id, recipient, session, said, user)
    return message


def dropped(project: UUID, event_id: str, recipient: Agent | None, subject: str, body: str) -> tuple[Message, bool]:
    """Send what a file says, of which nobody knows who wrote it; whether it is new. The same id is sent once."""
    said = {"to": recipient.name if recipient else SHARED, "subject": subject, "body": body, "file": True}
    return _post(event_id, SYSTEM_SOURCE, project, recipient, None, said, None)


def _post(
    event_id: str,
    actor: str,
    project: UUID,
    recipient: Agent | None,
    session: Session | None,
    said: dict[str, Any],
    user: User | None,
) -> tuple[Message, bool]:
    """Send in Gatebook's own name what came through no token."""
    made, received_us = identity(project, SYSTEM_SOURCE, event_id), now_us()
    draft = Draft(
        project=project,
        source=SYSTEM_SOURCE,
        event_id=event_id,
        kind="message.sent",
        lane="system",
        actor=actor,
        text=orjson.dumps({"kind": "message.sent", **said}, option=orjson.OPT_SORT_KEYS).decode(),
        facts=_facts(recipient, None),
        session=session.id if session else None,
        subject=made,
    )
    appended = entries.append([draft], received_us)[0]
    if appended.status is not Status.CREATED:
        return Message.objects.get(id=made), False
    message = Message.objects.create(
        id=made,
        project_id=project,
        recipient=recipient,
        session=session,
        from_user=user,
        size=_size(said["subject"], said["body"]),
        opened_position=appended.position,
        sent_at_us=received_us,
    )
    return message, True


def mark_read(origin: Origin, message: Message) -> int:
    """Note by command that the origin's agent has read a message of its boxes; since when (µs). Raises Repeated.

    To mark it again changes nothing and is not recorded.
    """
    locked = Message.objects.select_for_update(no_key=True).get(id=message.id)
    draft = origin.draft("message.read", facts=_read_facts(origin.agent), session=locked.session_id, subject=locked.id)
    before = read_by(origin.agent, [locked]).get(locked.id)
    if before is not None:
        if entries.look(draft, origin.received_us) is not None:
            raise Repeated
        return before
    if entries.append([draft], origin.received_us)[0].status is not Status.CREATED:
        raise Repeated
    _note(locked, origin.agent, origin.received_us)
    return origin.received_us


def mark_put_away(message: Message, agent: UUID) -> bool:
    """Note that an agent without a token has read a message, since it put its file away; False when it was noted."""
    locked = Message.objects.select_for_update(no_key=True).get(id=message.id)
    if read_by(agent, [locked]):
        return False
    received_us = now_us()
    entries.record(
        locked.project_id,
        "message.read",
        event_id=entries.keyed_digest("put away", str(locked.id), str(agent)),
        text=orjson.dumps({"kind": "message.read", "message": locked.id, "file": True}).decode(),
        received_us=received_us,
        facts=_read_facts(agent),
        session=locked.session_id,
        subject=locked.id,
    )
    _note(locked, agent, received_us)
    return True


def _note(locked: Message, agent: UUID, received_us: int) -> None:
    if locked.recipient_id is None:
        Reading.objects.create(message=locked, agent_id=agent, read_at_us=received_us)
    else:
        locked.read_at_us = received_us
        locked.save(update_fields=["read_at_us"])


def visible(project: UUID, agent: UUID, message: UUID) -> Message | None:
    """The message if it lies in the agent's own box or in the shared one of its project."""
    boxes = Q(recipient=agent) | Q(recipient__isnull=True)
    return Message.objects.filter(boxes, project=project, id=message).first()


def answerable(project: UUID, agent: UUID, message: UUID) -> bool:
    """Whether the agent may name the message as the one it replies to: it was sent to it, or by it."""
    own = Q(recipient=agent) | Q(recipient__isnull=True) | Q(from_agent=agent)
    return Message.objects.filter(own, project=project, id=message).exists()


def inbox(
    project: UUID,
    agent: UUID,
    *,
    boxes: Sequence[str] = BOXES,
    unread: bool = True,
    session: UUID | None = None,
    after: int = 0,
    limit: int,
) -> list[Letter]:
    """At most `limit` messages of the agent's boxes after position `after`, the oldest first.

    With `session`, those that are about it and those that are about none. What one sender sent is in its order; of two
    at once the earlier position may be seen later, so whoever looks again begins without `after`.
    """
    rows = Message.objects.filter(opened_position__gt=after)
    if session is not None:
        rows = rows.filter(Q(session=session) | Q(session__isnull=True))
    rows = rows.select_related("from_agent").order_by("opened_position")
    found: list[Message] = []
    if "mine" in boxes:
        # Without the project of what is unread, which the agent implies: beside it SQLite would walk the whole box.
        mine = Q(read_at_us__isnull=True) if unread else Q(project=project)
        found += rows.filter(mine, recipient=agent)[:limit]
    if "shared" in boxes:
        shared = rows.filter(project=project, recipient__isnull=True)
        if unread:
            shared = shared.exclude(Exists(Reading.objects.filter(message=OuterRef("id"), agent=agent)))
        found += shared[:limit]
    return letters(sorted(found, key=lambda one: one.opened_position)[:limit], agent)


def unread(project: UUID, agent: UUID, session: UUID | None = None, limit: int = 20) -> tuple[list[Letter], bool]:
    """The oldest unread messages of an agent (for one session, see `inbox`), and whether there are more."""
    found = inbox(project, agent, session=session, limit=limit + 1)
    return found[:limit], len(found) > limit


def about(project: UUID, agent: Agent | None, session: Session | None, below: int | None, limit: int) -> list[Letter]:
    """For people: messages about a session, or to an agent, or to all; the newest first, with how many read them."""
    rows = Message.objects.filter(project=project)
    rows = rows.filter(session=session) if session is not None else rows.filter(recipient=agent)
    if below is not None:
        rows = rows.filter(opened_position__lt=below)
    rows = rows.select_related("from_agent", "from_user", "recipient").annotate(readers=Count("readings"))
    return letters(rows.order_by("-opened_position")[:limit], None)


def letters(found: Iterable[Message], agent: UUID | None) -> list[Letter]:
    """Messages with their texts and, for an agent, since when it has read them. Two queries at most."""
    rows = list(found)
    texts = texts_of(rows)
    read = read_by(agent, rows) if agent is not None else {one.id: one.read_at_us for one in rows}
    nothing: tuple[None, None] = (None, None)
    told = [(one, texts.get(one.opened_position, nothing)) for one in rows]
    return [Letter(one, subject, body, read.get(one.id)) for one, (subject, body) in told]


def texts_of(rows: Sequence[Message]) -> dict[int, tuple[str, str]]:
    """Subject and body by position; absent where they were erased. One query."""
    if not rows:
        return {}
    bodies = Body.objects.filter(entry__in=[one.opened_position for one in rows]).values_list("entry", "text")
    told = {position: orjson.loads(text) for position, text in bodies}
    return {position: (body.get("subject", ""), body["body"]) for position, body in told.items()}


def read_by(agent: UUID, rows: Sequence[Message]) -> dict[UUID, int]:
    """When the agent read each of these messages, by id; absent where it has not."""
    read = {one.id: one.read_at_us for one in rows if one.recipient_id == agent and one.read_at_us is not None}
    shared = [one.id for one in rows if one.recipient_id is None]
    if shared:
        read |= dict(Reading.objects.filter(message__in=shared, agent=agent).values_list("message", "read_at_us"))
    return read


def _facts(recipient: Agent | None, in_reply_to: UUID | None) -> str:
    facts = {"box": recipient.id.hex if recipient else SHARED}
    if in_reply_to is not None:
        facts["in_reply_to"] = in_reply_to.hex
    return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()


def _read_facts(agent: UUID) -> str:
    return orjson.dumps({"agent": agent.hex}).decode()


def _size(subject: str, body: str) -> int:
    return len(subject.encode("utf-8", "surrogatepass")) + len(body.encode("utf-8", "surrogatepass"))
