"""What an exemption let pass: each use, when that effect ran, and how long after its end."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import BigIntegerField, Case, Count, Exists, F, OuterRef, Value, When

from approvals.models import Exemption
from inquiry.query.of_people import uses
from inquiry.repeating import RUNS
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Project

MOST: Final = 200  # uses that a page shows, the newest


@dataclass(frozen=True, slots=True)
class Use:
    """One use. `ran_us` is None where it did not run; `late_us` is how long after the end it ran, None for before."""

    effect: Effect
    given_us: int
    position: int
    ran_us: int | None
    late_us: int | None


def over_us(exemption: Exemption) -> int:
    """When it counted no more: its end, or its revocation before that."""
    revoked = exemption.revoked_at_us
    return exemption.ends_at_us if revoked is None else min(revoked, exemption.ends_at_us)


def of(exemption: Exemption, upto: int | None = None) -> list[Use]:
    """The newest uses, MOST and one more where there are more. As of the position `upto`; None for now. Two queries."""
    told = list(_told(exemption.project, [exemption.id], upto).order_by("-position")[: MOST + 1])
    rows = Effect.objects.filter(project=exemption.project_id, id__in={one.effect for one in told})
    effects = {row.id: row for row in rows.select_related("session", "agent", "repository")}
    return [_use(exemption, one, effects[one.effect]) for one in told if one.effect in effects]


def count_late(project: Project, rows: Iterable[Any], upto: int | None = None) -> None:
    """Let each exemption know as `late` how many of its uses ran after its end. At most one query."""
    known = {one.id: one for one in rows}
    for one in known.values():
        one.late = 0
    if not known:
        return
    # Left to itself Django takes a number for four bytes, and PostgreSQL is sent the rest of it.
    big = BigIntegerField()
    over = Case(*[When(subject=one.id, then=Value(over_us(one), big)) for one in known.values()], output_field=big)
    told = _told(project, list(known), upto).annotate(over_us=over).filter(ran_us__gt=F("over_us"))
    if upto is not None:
        told = told.filter(had_run=True)
    for subject, late in told.order_by().values_list("subject").annotate(Count("pk")):
        known[subject].late = late


def _told(project: Project, ids: list[UUID], upto: int | None) -> Any:
    told = uses(project).filter(subject__in=ids)
    if upto is None:
        return told
    ran = Entry.objects.filter(effect=OuterRef("effect"), kind__in=RUNS, position__lte=upto).exclude(lane="claim")
    return told.filter(position__lte=upto).annotate(had_run=Exists(ran))


def _use(exemption: Exemption, told: Any, effect: Effect) -> Use:
    ran_us = told.ran_us if getattr(told, "had_run", True) else None
    over = over_us(exemption)
    return Use(effect, told.received_us, told.position, ran_us, ran_us - over if ran_us and ran_us > over else None)
