"""Journal entries of a project around a position."""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import F, OuterRef, QuerySet, Subquery

from journal.models import Entry
from ledger.models import Effect
from sessions.models import Person, Project, Session

BESIDE: Final = 10  # entries on either side
# Positions are shared by all projects. The distance limits how many entries of others are read.
FAR: Final = 20_000


@dataclass(slots=True)
class Neighbours:
    """Entries newest first.

    `earlier` and `later` are the next positions to show, None at an end.
    """

    rows: list[Any] = field(default_factory=list)
    at: int | None = None
    is_there: bool = True  # False: this project has no entry at `at`
    earlier: int | None = None
    later: int | None = None


def around(project: Project, at: int | None) -> Neighbours:
    """Return the entries around `at`, or the newest.

    At most four queries, none reads beyond FAR.

    Each has `who` (the person of a pseudonym) and the numbers of its session and effect.
    """
    entries = _entries(project.id)
    if at is None:
        last = Entry.objects.order_by("-position").values_list("position", flat=True).first() or 0
        recent = entries.filter(position__gt=last - FAR).order_by("-position")
        newest = list(recent[: 2 * BESIDE + 2])
        rows = newest[: 2 * BESIDE + 1]
        if rows:
            return Neighbours(rows, earlier=rows[-1].position if len(newest) > len(rows) else None)
        # Only other projects wrote recently: start at the newest session of this one.
        at = (
            project.sessions.order_by("-opened_position")
            .values_list("opened_position", flat=True)
            .first()
        )
        if at is None:
            return Neighbours()
    behind = list(
        entries.filter(position__lte=at, position__gt=at - FAR).order_by("-position")[: BESIDE + 2]
    )
    ahead = list(
        entries.filter(position__gt=at, position__lt=at + FAR).order_by("position")[: BESIDE + 1]
    )
    is_there = bool(behind) and behind[0].position == at
    shown_behind = BESIDE + is_there
    rows = [*reversed(ahead[:BESIDE]), *behind[:shown_behind]]
    return Neighbours(
        rows,
        at,
        is_there,
        earlier=rows[-1].position if len(behind) > shown_behind else None,
        later=rows[0].position if len(ahead) > BESIDE else None,
    )


def _entries(project: UUID) -> "QuerySet[Any]":
    name = Person.objects.filter(pseudonym=OuterRef("actor")).values("user__username")[:1]
    session = Session.objects.filter(id=OuterRef("session"), project=project).values(
        "opened_position"
    )[:1]
    effect = Effect.objects.filter(id=OuterRef("effect"), project=project).values(
        "opened_position", "tool"
    )
    return Entry.objects.filter(project=project).annotate(
        who=Subquery(name),
        session_position=Subquery(session),
        effect_position=Subquery(effect.values("opened_position")[:1]),
        effect_tool=Subquery(effect.values("tool")[:1]),
        erased_at_us=F("erasure__erased_at_us"),
    )
