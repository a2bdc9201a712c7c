"""The one writer of MessageFile: which messages are files in which folder."""

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from accounts.models import Agent
from db.clock import now_us
from sessions.models import Message, MessageFile, MessageRead


def record_deliveries(directory: UUID, files: Mapping[UUID, str]) -> None:
    """Record each message's (by id) file name in a folder. Repeats change nothing."""
    stored = set(
        MessageFile.objects.filter(directory=directory, message__in=files).values_list(
            "message", flat=True
        )
    )
    rows = [
        MessageFile(directory=directory, message_id=message, file=files[message])
        for message in files
        if message not in stored
    ]
    MessageFile.objects.bulk_create(rows)


def end_delivery(delivery: MessageFile) -> None:
    """Record that a delivery's file is gone."""
    MessageFile.objects.filter(id=delivery.id, ended_at_us__isnull=True).update(
        ended_at_us=now_us()
    )


def load_open_deliveries(directory: UUID, recipient: Agent | None) -> list[MessageFile]:
    """Return the deliveries whose files are not known to be gone, oldest first."""
    rows = MessageFile.objects.filter(
        directory=directory, message__recipient=recipient, ended_at_us__isnull=True
    )
    return list(rows.select_related("message").order_by("id"))


def count_ended_deliveries(directory: UUID, file: str) -> int:
    """Count the deleted files of this name. A file that exists now is another one."""
    return MessageFile.objects.filter(
        directory=directory, file=file, ended_at_us__isnull=False
    ).count()


def load_messages_by_file(directory: UUID, files: Iterable[str]) -> dict[str, set[UUID]]:
    """Return the messages that are, or were, in the folder under these names."""
    messages: dict[str, set[UUID]] = {}
    names = list(files)
    for start in range(0, len(names), 500):
        part = MessageFile.objects.filter(directory=directory, file__in=names[start : start + 500])
        for file, message in part.values_list("file", "message"):
            messages.setdefault(file, set()).add(message)
    return messages


def load_undelivered_messages(
    directory: UUID, project: UUID, recipient: Agent | None, limit: int
) -> list[Message]:
    """Return the oldest messages of an inbox that were never in the folder.

    Of an agent's inbox only unread messages, of the shared inbox all.
    """
    rows = _query_inbox(project, recipient)
    if recipient is not None:
        rows = rows.filter(read_at_us__isnull=True)
    rows = rows.exclude(
        Exists(MessageFile.objects.filter(message=OuterRef("id"), directory=directory))
    )
    return list(
        rows.select_related("from_agent", "session", "in_reply_to").order_by("opened_position")[
            :limit
        ]
    )


def iterate_unread_shared_deliveries(directory: UUID, agent: Agent) -> Iterator[MessageFile]:
    """Yield deliveries in the shared folder, gone or not, that the agent has not read."""
    read = MessageRead.objects.filter(message=OuterRef("message"), agent=agent)
    rows = MessageFile.objects.filter(
        ~Exists(read), directory=directory, message__recipient__isnull=True
    )
    return rows.select_related("message").order_by("id").iterator(1000)


def find_message_in_inbox(project: UUID, recipient: Agent | None, position: int) -> Message | None:
    """Return the message of an inbox whose handle has this number, or None."""
    rows = _query_inbox(project, recipient).filter(opened_position=position)
    return rows.select_related("from_agent", "session", "in_reply_to").first()


def _query_inbox(project: UUID, recipient: Agent | None) -> "QuerySet[Message]":
    box = Q(recipient__isnull=True) if recipient is None else Q(recipient=recipient)
    return Message.objects.filter(box, project=project)
