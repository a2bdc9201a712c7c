"""Drafts to append, and queries of the journal."""

from typing import Any
from uuid import UUID, uuid4

from journal.entries import Draft
from journal.models import Body, Entry

NOW_US = 1_800_000_000_000_000


def draft(
    event_id: str,
    text: str = '{"word":"first"}',
    *,
    project: UUID,
    source: str = "robot",
    **more: Any,
) -> Draft:
    """Return the draft of an arbitrary fact."""
    return Draft(
        project=project,
        source=source,
        event_id=event_id,
        kind=more.pop("kind", "fact.observed"),
        lane=more.pop("lane", "evidence"),
        actor="agent:7",
        text=text,
        **more,
    )


def new_project() -> UUID:
    """Return a project id; the journal has no foreign key to projects."""
    return uuid4()


def ids(project: UUID) -> list[str]:
    """Return the ids of a project's entries in the order of their positions."""
    return list(
        Entry.objects.filter(project=project)
        .order_by("position")
        .values_list("event_id", flat=True)
    )


def conflicts(project: UUID) -> list[Entry]:
    """Return the stored evidence of keys repeated with other content."""
    return list(
        Entry.objects.filter(project=project, kind="integrity.conflict").order_by("position")
    )


def text_of(position: int) -> str:
    """Return the stored body."""
    return Body.objects.get(entry=position).text
