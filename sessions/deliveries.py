"""The one writer of Delivery: which messages are files in which folder."""

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from journal.clock import now_us
from sessions.models import Agent
from sessions.models_messages import Delivery, Message, Reading


def note(directory: UUID, files: Mapping[UUID, str]) -> None:
    """Record each message's (by id) file name in a folder. Repeats change nothing."""
    stored = set(
        Delivery.objects.filter(directory=directory, message__in=files).values_list(
            "message", flat=True
        )
    )
    rows = [
        Delivery(directory=directory, message_id=message, file=files[message])
        for message in files
        if message not in stored
    ]
    Delivery.objects.bulk_create(rows)


def end(delivery: Delivery) -> None:
    """Record that a delivery's file is gone."""
    Delivery.objects.filter(id=delivery.id, ended_at_us__isnull=True).update(ended_at_us=now_us())


def lying(directory: UUID, recipient: Agent | None) -> list[Delivery]:
    """Return the deliveries whose files are not known to be gone, oldest first."""
    rows = Delivery.objects.filter(
        directory=directory, message__recipient=recipient, ended_at_us__isnull=True
    )
    return list(rows.select_related("message").order_by("id"))


def gone_before(directory: UUID, file: str) -> int:
    """Count the deleted files of this name. A file that exists now is another one."""
    return Delivery.objects.filter(
        directory=directory, file=file, ended_at_us__isnull=False
    ).count()


def of_files(directory: UUID, files: Iterable[str]) -> dict[str, set[UUID]]:
    """Return the messages that are, or were, in the folder under these names."""
    messages: dict[str, set[UUID]] = {}
    names = list(files)
    for start in range(0, len(names), 500):
        part = Delivery.objects.filter(directory=directory, file__in=names[start : start + 500])
        for file, message in part.values_list("file", "message"):
            messages.setdefault(file, set()).add(message)
    return messages


def missing(directory: UUID, project: UUID, recipient: Agent | None, limit: int) -> list[Message]:
    """Return the oldest messages of an inbox that were never in the folder.

    Of an agent's inbox only unread messages, of the shared inbox all.
    """
    rows = _query_inbox(project, recipient)
    if recipient is not None:
        rows = rows.filter(read_at_us__isnull=True)
    rows = rows.exclude(
        Exists(Delivery.objects.filter(message=OuterRef("id"), directory=directory))
    )
    return list(
        rows.select_related("from_agent", "session", "in_reply_to").order_by("opened_position")[
            :limit
        ]
    )


def unread_of_all(directory: UUID, agent: Agent) -> Iterator[Delivery]:
    """Yield deliveries in the shared folder, gone or not, that the agent has not read."""
    read = Reading.objects.filter(message=OuterRef("message"), agent=agent)
    rows = Delivery.objects.filter(
        ~Exists(read), directory=directory, message__recipient__isnull=True
    )
    return rows.select_related("message").order_by("id").iterator(1000)


def at(project: UUID, recipient: Agent | None, position: int) -> Message | None:
    """Return the message of an inbox whose handle has this number, or None."""
    rows = _query_inbox(project, recipient).filter(opened_position=position)
    return rows.select_related("from_agent", "session", "in_reply_to").first()


def _query_inbox(project: UUID, recipient: Agent | None) -> "QuerySet[Message]":
    box = Q(recipient__isnull=True) if recipient is None else Q(recipient=recipient)
    return Message.objects.filter(box, project=project)
