"""Uses of an exemption: when each effect ran, and how long after the exemption's end."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import BigIntegerField, Case, Count, Exists, F, OuterRef, Value, When

from accounts.models import Project
from approvals.models import Exemption
from investigation.fulltext.duplicate_index import RUN_KINDS
from investigation.query.registry.gates import exemption_uses
from journal.models import Entry
from ledger.models import Effect

MAX_EXEMPTION_USES: Final = 200  # Newest uses that a page shows.


@dataclass(frozen=True, slots=True)
class ExemptionUse:
    """A use of an exemption by an effect.

    `ran_us` is None if the effect did not run; `late_us` is how long after the end it ran, or None.
    """

    effect: Effect
    given_us: int
    position: int
    ran_us: int | None
    late_us: int | None


def exemption_end_us(exemption: Exemption) -> int:
    """Return when the exemption ended: at its end or its earlier revocation."""
    revoked = exemption.revoked_at_us
    return exemption.ends_at_us if revoked is None else min(revoked, exemption.ends_at_us)


def load_exemption_uses(exemption: Exemption, upto: int | None = None) -> list[ExemptionUse]:
    """Return the newest uses, at most MAX_EXEMPTION_USES plus one more if there are more.

    As of the position `upto`, or now. Two queries.
    """
    uses = list(
        _select_use_entries(exemption.project, [exemption.id], upto).order_by("-position")[
            : MAX_EXEMPTION_USES + 1
        ]
    )
    rows = Effect.objects.filter(project=exemption.project_id, id__in={use.effect for use in uses})
    effects = {row.id: row for row in rows.select_related("session", "agent", "repository")}
    return [
        _build_use(exemption, use, effects[use.effect]) for use in uses if use.effect in effects
    ]


def set_late_counts(project: Project, rows: Iterable[Any], upto: int | None = None) -> None:
    """Set `late` of each exemption: how many uses ran after its end. At most one query."""
    exemptions_by_id = {exemption.id: exemption for exemption in rows}
    for exemption in exemptions_by_id.values():
        exemption.late = 0
    if not exemptions_by_id:
        return
    # Without the field type, Django assumes four bytes and PostgreSQL rejects larger values.
    bigint = BigIntegerField()
    end_us = Case(
        *[
            When(subject=exemption.id, then=Value(exemption_end_us(exemption), bigint))
            for exemption in exemptions_by_id.values()
        ],
        output_field=bigint,
    )
    late_uses = (
        _select_use_entries(project, list(exemptions_by_id), upto)
        .annotate(over_us=end_us)
        .filter(ran_us__gt=F("over_us"))
    )
    if upto is not None:
        late_uses = late_uses.filter(had_run=True)
    for subject, late in late_uses.order_by().values_list("subject").annotate(Count("pk")):
        exemptions_by_id[subject].late = late


def _select_use_entries(project: Project, ids: list[UUID], upto: int | None) -> Any:
    use_entries = exemption_uses(project).filter(subject__in=ids)
    if upto is None:
        return use_entries
    ran = Entry.objects.filter(
        effect=OuterRef("effect"), kind__in=RUN_KINDS, position__lte=upto
    ).exclude(lane="claim")
    return use_entries.filter(position__lte=upto).annotate(had_run=Exists(ran))


def _build_use(exemption: Exemption, use_entry: Any, effect: Effect) -> ExemptionUse:
    ran_us = use_entry.ran_us if getattr(use_entry, "had_run", True) else None
    end_us = exemption_end_us(exemption)
    return ExemptionUse(
        effect,
        use_entry.received_us,
        use_entry.position,
        ran_us,
        ran_us - end_us if ran_us and ran_us > end_us else None,
    )
