"""The one writer of Delivery: which messages lie as files in which folder, and which were put away there."""

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from journal.clock import now_us
from sessions.models import Agent
from sessions.models_messages import Delivery, Message, Reading


def note(directory: UUID, files: Mapping[UUID, str]) -> None:
    """Note that each message (by id) lies in the folder as the file of that name. To note it again changes nothing."""
    known = set(Delivery.objects.filter(directory=directory, message__in=files).values_list("message", flat=True))
    rows = [Delivery(directory=directory, message_id=one, file=files[one]) for one in files if one not in known]
    Delivery.objects.bulk_create(rows)


def end(delivery: Delivery) -> None:
    """Note that its file is gone."""
    Delivery.objects.filter(id=delivery.id, ended_at_us__isnull=True).update(ended_at_us=now_us())


def lying(directory: UUID, recipient: Agent | None) -> list[Delivery]:
    """What was not yet found to be gone, with its messages, in the order in which it came."""
    rows = Delivery.objects.filter(directory=directory, message__recipient=recipient, ended_at_us__isnull=True)
    return list(rows.select_related("message").order_by("id"))


def gone_before(directory: UUID, file: str) -> int:
    """How often a file of this name was found to be gone: so one that is there is another."""
    return Delivery.objects.filter(directory=directory, file=file, ended_at_us__isnull=False).count()


def of_files(directory: UUID, files: Iterable[str]) -> dict[str, set[UUID]]:
    """Which messages lie, or lay, in the folder under these names."""
    found: dict[str, set[UUID]] = {}
    names = list(files)
    for start in range(0, len(names), 500):
        part = Delivery.objects.filter(directory=directory, file__in=names[start : start + 500])
        for file, message in part.values_list("file", "message"):
            found.setdefault(file, set()).add(message)
    return found


def missing(directory: UUID, project: UUID, recipient: Agent | None, limit: int) -> list[Message]:
    """The oldest messages of a box that were never in the folder: of one agent's box the unread, of the shared all."""
    rows = _of_box(project, recipient)
    if recipient is not None:
        rows = rows.filter(read_at_us__isnull=True)
    rows = rows.exclude(Exists(Delivery.objects.filter(message=OuterRef("id"), directory=directory)))
    return list(rows.select_related("from_agent", "session", "in_reply_to").order_by("opened_position")[:limit])


def unread_of_all(directory: UUID, agent: Agent) -> Iterator[Delivery]:
    """What lies or lay in the shared folder and the agent has not read."""
    read = Reading.objects.filter(message=OuterRef("message"), agent=agent)
    rows = Delivery.objects.filter(~Exists(read), directory=directory, message__recipient__isnull=True)
    return rows.select_related("message").order_by("id").iterator(1000)


def at(project: UUID, recipient: Agent | None, position: int) -> Message | None:
    """The message of a box whose handle has this number."""
    rows = _of_box(project, recipient).filter(opened_position=position)
    return rows.select_related("from_agent", "session", "in_reply_to").first()


def _of_box(project: UUID, recipient: Agent | None) -> "QuerySet[Message]":
    whose = Q(recipient__isnull=True) if recipient is None else Q(recipient=recipient)
    return Message.objects.filter(whose, project=project)
