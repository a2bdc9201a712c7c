"""Drafts to append, and what is in the journal afterwards."""

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
    """A fact about nothing in particular."""
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
    """The id of a project; the journal knows nobody, so any will do."""
    return uuid4()


def ids(project: UUID) -> list[str]:
    """The ids of a project's entries in the order of their positions."""
    return list(
        Entry.objects.filter(project=project)
        .order_by("position")
        .values_list("event_id", flat=True)
    )


def conflicts(project: UUID) -> list[Entry]:
    """The kept evidence of keys that came again with other content."""
    return list(
        Entry.objects.filter(project=project, kind="integrity.conflict").order_by("position")
    )


def text_of(position: int) -> str:
    """The stored body."""
    return Body.objects.get(entry=position).text
