"""The one writer of SameCall: equal calls in several sessions.

Tools that only read, or that set a state, may repeat a call: they are
neither checked nor linked.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from db import raw_sql
from db.raw_sql import vendor_id
from ledger.models import Effect, SameCall
from ledger.store.effect_rows import EffectRow, to_uuid
from ledger.tools import cache
from ledger.verdicts import evaluate

MAX_LINKS: Final = 5  # effects that one plan is linked to, oldest first
REPEATABLE_CLASSES: Final = ("read_only", "idempotent")
# The condition of the index effect_unknown_intent; parameters: project, intent, excluded session.
UNKNOWN_CALLS_SQL: Final = (
    "SELECT id FROM ledger_effect"
    " WHERE project_id = %s AND intent_digest = %s AND session_id <> %s"
    " AND (state = 'dispatched' OR outcome = 'unknown')"
)


class SameCallLink(NamedTuple):
    """Another effect with the same call; `earlier`: of unknown outcome then."""

    other: Effect
    earlier: bool
    position: int

    def to_json(self) -> dict[str, Any]:
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


def find_unknown_calls(
    project: UUID, session: UUID, tool: str, intent: str, most: int = MAX_LINKS
) -> tuple[UUID, ...]:
    """Return other sessions' equal calls of unknown outcome, oldest first."""
    declaration = cache.load_tool(project, tool)
    if declaration.tool_class in REPEATABLE_CLASSES and not declaration.raises_class:
        return ()
    conditions = [vendor_id(project), intent, vendor_id(session)]
    records = raw_sql.fetch_rows(
        f"{UNKNOWN_CALLS_SQL} ORDER BY opened_position LIMIT {most}", conditions
    )
    calls = tuple(effect for row in records if (effect := to_uuid(row[0])) is not None)
    if not calls or declaration.tool_class not in REPEATABLE_CLASSES:
        return calls
    # Equal calls have equal arguments, so the class of the first is that of all.
    first = list(Effect.objects.filter(id=calls[0]))
    (raised,) = evaluate.load_call_declarations(project, first).values()
    return () if raised.tool_class in REPEATABLE_CLASSES else calls


def link_same_calls(row: EffectRow, position: int) -> tuple[UUID, ...]:
    """Link an effect to calls of other sessions that may already have done the same; return them.

    Links stay after an outcome becomes known; the agent's answer lists only calls whose outcome is
    unknown now.
    """
    calls = find_unknown_calls(row.project_id, row.session_id, row.tool, row.intent_digest)
    links = [
        SameCall(
            project_id=row.project_id,
            effect_id=row.id,
            session_id=row.session_id,
            other_id=other,
            other_session_id=session,
            position=position,
        )
        for other, session in Effect.objects.filter(id__in=calls).values_list("id", "session")
    ]
    SameCall.objects.bulk_create(links, ignore_conflicts=True)
    return calls


def load_links_of_effects(
    effects: Iterable[UUID], until: int | None = None
) -> dict[UUID, list[SameCallLink]]:
    """Return the links of each effect, in journal order up to a position. One query."""
    effect_ids = set(effects)
    rows = (
        SameCall.objects.filter(Q(effect__in=effect_ids) | Q(other__in=effect_ids))
        if effect_ids
        else SameCall.objects.none()
    )
    links: dict[UUID, list[SameCallLink]] = {}
    for row in _load_rows(rows, until):
        if row.effect_id in effect_ids:
            links.setdefault(row.effect_id, []).append(SameCallLink(row.other, True, row.position))
        if row.other_id in effect_ids:
            links.setdefault(row.other_id, []).append(SameCallLink(row.effect, False, row.position))
    return links


def has_same_call(**by: str) -> Exists:
    """Return a subquery: whether a row has a link, by the columns that hold its id."""
    held = Q(*[(name, OuterRef(of)) for name, of in by.items()], _connector=Q.OR)
    return Exists(SameCall.objects.filter(held))


OF_EFFECT: Final = {"effect": "id", "other": "id"}
OF_SESSION: Final = {"session": "id", "other_session": "id"}


def has_earlier_same_call(effect: UUID) -> bool:
    """True if the same call was of unknown outcome elsewhere when this one began."""
    return SameCall.objects.filter(effect=effect).exists()


def load_links_of_session(
    session: UUID, most: int, until: int | None = None
) -> list[tuple[Effect, SameCallLink]]:
    """Return the session's linked effects, newest first, with the others."""
    rows = SameCall.objects.filter(Q(session=session) | Q(other_session=session))
    pairs = []
    for row in reversed(_load_rows(rows, until)[-most:]):
        is_own = row.session_id == session
        own_effect, other = (row.effect, row.other) if is_own else (row.other, row.effect)
        pairs.append((own_effect, SameCallLink(other, is_own, row.position)))
    return pairs


def _load_rows(rows: Any, until: int | None) -> list[SameCall]:
    if until is not None:
        rows = rows.filter(position__lte=until)
    return list(rows.select_related("effect__session", "other__session").order_by("position", "id"))


def same_calls_to_json(
    links: Mapping[UUID, Sequence[SameCallLink]], effect: UUID
) -> dict[str, Any]:
    """Return the links of an effect for an API answer, or nothing if there are none."""
    own_links = links.get(effect)
    return {"same_calls": [own_link.to_json() for own_link in own_links]} if own_links else {}
