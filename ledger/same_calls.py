"""The one writer of SameCall: equal calls in several sessions.

Tools that only read, or that set a state, may repeat a call: they are
neither checked nor linked.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from journal import sql
from journal.sql import vendor_id
from ledger import declared
from ledger.models import Effect
from ledger.models_same_calls import SameCall
from ledger.rows import as_uuid

MOST: Final = 5  # effects that one plan is linked to, oldest first
HARMLESS: Final = ("read_only", "natural")
# The condition of the index effect_unknown_intent; parameters: project, intent, excluded session.
UNKNOWN_SQL: Final = (
    "SELECT id FROM ledger_effect"
    " WHERE project_id = %s AND intent_digest = %s AND session_id <> %s"
    " AND (state = 'dispatched' OR outcome = 'unknown')"
)


class Link(NamedTuple):
    """Another effect with the same call; `earlier`: of unknown outcome then."""

    other: Effect
    earlier: bool
    position: int

    def told(self) -> dict[str, Any]:
        """Serialize for an API answer."""
        other = self.other
        return {
            "effect": str(other.id),
            "handle": str(other),
            "session": str(other.session_id),
            "session_handle": str(other.session),
            "session_key": other.session.key,
            "state": other.state,
            "outcome": other.outcome or None,
            "earlier": self.earlier,
        }


def is_harmless(project: UUID, tool: str) -> bool:
    """True if repeating a call does no more than making it once."""
    return declared.tool(project, tool).tool_class in HARMLESS


def unknown(project: UUID, session: UUID, tool: str, intent: str, most: int = MOST) -> list[UUID]:
    """Return other sessions' equal calls of unknown outcome, oldest first."""
    if is_harmless(project, tool):
        return []
    conditions = [vendor_id(project), intent, vendor_id(session)]
    records = sql.rows(f"{UNKNOWN_SQL} ORDER BY opened_position LIMIT {most}", conditions)
    return [effect for row in records if (effect := as_uuid(row[0])) is not None]


def link(effect: UUID, project: UUID, session: UUID, others: Sequence[UUID], position: int) -> None:
    """Link an effect to others permanently; existing links stay."""
    sessions = Effect.objects.filter(id__in=others).values_list("id", "session")
    rows = [
        SameCall(
            project_id=project, effect_id=effect, session_id=session,
            other_id=other, other_session_id=its_session, position=position,
        )
        for other, its_session in sessions
    ]  # fmt: skip
    SameCall.objects.bulk_create(rows, ignore_conflicts=True)


def of_effects(effects: Iterable[UUID], until: int | None = None) -> dict[UUID, list[Link]]:
    """Return the links of each effect, in journal order up to a position. One query."""
    effect_ids = set(effects)
    rows = (
        SameCall.objects.filter(Q(effect__in=effect_ids) | Q(other__in=effect_ids))
        if effect_ids
        else SameCall.objects.none()
    )
    links: dict[UUID, list[Link]] = {}
    for row in _load_rows(rows, until):
        if row.effect_id in effect_ids:
            links.setdefault(row.effect_id, []).append(Link(row.other, True, row.position))
        if row.other_id in effect_ids:
            links.setdefault(row.other_id, []).append(Link(row.effect, False, row.position))
    return links


def is_named(**by: str) -> Exists:
    """Return a subquery: whether a row has a link, by the columns that hold its id."""
    held = Q(*[(name, OuterRef(of)) for name, of in by.items()], _connector=Q.OR)
    return Exists(SameCall.objects.filter(held))


OF_EFFECT: Final = {"effect": "id", "other": "id"}
OF_SESSION: Final = {"session": "id", "other_session": "id"}


def was_unknown(effect: UUID) -> bool:
    """True if the same call was of unknown outcome elsewhere when this one began."""
    return SameCall.objects.filter(effect=effect).exists()


def of_session(session: UUID, most: int, until: int | None = None) -> list[tuple[Effect, Link]]:
    """Return the session's linked effects, newest first, with the others."""
    rows = SameCall.objects.filter(Q(session=session) | Q(other_session=session))
    pairs = []
    for row in reversed(_load_rows(rows, until)[-most:]):
        is_own = row.session_id == session
        own_effect, other = (row.effect, row.other) if is_own else (row.other, row.effect)
        pairs.append((own_effect, Link(other, is_own, row.position)))
    return pairs


def _load_rows(rows: Any, until: int | None) -> list[SameCall]:
    if until is not None:
        rows = rows.filter(position__lte=until)
    return list(rows.select_related("effect__session", "other__session").order_by("position", "id"))


def told(links: Mapping[UUID, Sequence[Link]], effect: UUID) -> dict[str, Any]:
    """Return the links of an effect for an API answer, or nothing if there are none."""
    own_links = links.get(effect)
    return {"same_calls": [own_link.told() for own_link in own_links]} if own_links else {}
