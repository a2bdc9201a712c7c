"""Acknowledgements of violations, as the page lists them."""

from typing import Any, Final
from uuid import UUID

from django.db.models import OuterRef, Subquery

from accounts.models import Person
from journal.entry_times import STATED_US
from journal.models import Entry
from journal.summaries import parse_body
from ledger.models import Effect
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from ledger.violations import ACKNOWLEDGED_KIND

SHOWN_ACKNOWLEDGEMENTS: Final = 20


def load_newest_acknowledgements(project: UUID) -> list[dict[str, Any]]:
    """Return the newest acknowledgements with effect, person and reason. One query."""
    person = Person.objects.filter(pseudonym=OuterRef("actor")).values("user__username")[:1]
    effect = Effect.objects.filter(id=OuterRef("effect")).values("opened_position")[:1]
    rows = Entry.objects.filter(IS_OF_A_RARE_KIND, project=project, kind=ACKNOWLEDGED_KIND)
    rows = rows.annotate(by=Subquery(person), number=Subquery(effect)).order_by("-position")
    listed = rows.values_list("effect", "number", "by", "actor", STATED_US, "body__text")
    return [
        {
            "effect": effect_id,
            "handle": f"e_{number}",
            "by": by or actor,
            "at_us": at_us,
            "reason": str(parse_body(text or "").get("reason", "")),
        }
        for effect_id, number, by, actor, at_us, text in listed[:SHOWN_ACKNOWLEDGEMENTS]
    ]
