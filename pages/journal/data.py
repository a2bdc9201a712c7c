"""Journal entries of a project around a position."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import F, OuterRef, QuerySet, Subquery

from accounts.models import Person, Project
from journal import summaries
from journal.models import Body, Entry
from ledger.models import Effect
from monitoring.stuck.episodes import STUCK_KINDS, sentence_from_json
from monitoring.stuck.rule_names import name_rule
from sessions.models import Session

ENTRIES_PER_SIDE: Final = 10  # entries on either side
# Positions are shared by all projects. The distance limits how many entries of others are read.
MAX_DISTANCE: Final = 20_000


@dataclass(slots=True)
class JournalPage:
    """Entries newest first; `earlier` and `later` are positions, None at an end."""

    rows: list[Any] = field(default_factory=list)
    at: int | None = None
    is_there: bool = True  # False: this project has no entry at `at`
    earlier: int | None = None
    later: int | None = None


def load_entries_around(project: Project, at: int | None) -> JournalPage:
    """Return the entries around `at`, or the newest.

    At most four queries, none reads beyond FAR.

    Each has `who` (the person of a pseudonym) and the numbers of its session and effect.
    """
    entries = _entries_with_names(project.id)
    if at is None:
        last = Entry.objects.order_by("-position").values_list("position", flat=True).first() or 0
        recent = entries.filter(position__gt=last - MAX_DISTANCE).order_by("-position")
        newest = list(recent[: 2 * ENTRIES_PER_SIDE + 2])
        rows = newest[: 2 * ENTRIES_PER_SIDE + 1]
        if rows:
            return JournalPage(rows, earlier=rows[-1].position if len(newest) > len(rows) else None)
        # Only other projects wrote recently: start at the newest session of this one.
        at = (
            project.sessions.order_by("-opened_position")
            .values_list("opened_position", flat=True)
            .first()
        )
        if at is None:
            return JournalPage()
    behind = list(
        entries.filter(position__lte=at, position__gt=at - MAX_DISTANCE).order_by("-position")[
            : ENTRIES_PER_SIDE + 2
        ]
    )
    ahead = list(
        entries.filter(position__gt=at, position__lt=at + MAX_DISTANCE).order_by("position")[
            : ENTRIES_PER_SIDE + 1
        ]
    )
    is_there = bool(behind) and behind[0].position == at
    shown_behind = ENTRIES_PER_SIDE + is_there
    rows = [*reversed(ahead[:ENTRIES_PER_SIDE]), *behind[:shown_behind]]
    return JournalPage(
        rows,
        at,
        is_there,
        earlier=rows[-1].position if len(behind) > shown_behind else None,
        later=rows[0].position if len(ahead) > ENTRIES_PER_SIDE else None,
    )


def describe_stuck_entries(rows: Sequence[Any]) -> None:
    """Set `why` of entries about stuck sessions: the rule, and its evidence unless erased.

    One query if there are any.
    """
    entries = [row for row in rows if row.kind in STUCK_KINDS and row.lane == "system"]
    if not entries:
        return
    texts = dict(Body.objects.filter(entry__in=entries).values_list("entry", "text"))
    for entry in entries:
        evidence = sentence_from_json(summaries.parse_body(texts.get(entry.pk, "")).get("says", []))
        rule = name_rule(orjson.loads(entry.facts))
        entry.why = [f"{rule}: ", *evidence] if evidence else [rule]


def _entries_with_names(project: UUID) -> "QuerySet[Any]":
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
        expired_by=F("erasure__expired_by"),
    )
