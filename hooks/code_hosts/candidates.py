"""Load the effects that may be behind an event, in a bounded number of rows."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Q, QuerySet

from accounts.models import Repository
from hooks.code_hosts.event_facts import EventFacts, split_repository
from hooks.code_hosts.matching import (
    WINDOW_AFTER_US,
    WINDOW_BEFORE_US,
    EffectFacts,
    read_calls,
)
from hooks.models import CodeHostEvent, EventMatch
from ledger.models import Attempt, Effect
from ledger.partial_indexes import HAS_REFERENCE
from ledger.tools import cache
from ledger.verdicts import verdict_inputs

MAX_PER_QUERY: Final = 200
MAX_REPOSITORIES: Final = 2_000
MAX_NEWEST: Final = 20_000  # effects of a project that are searched without an index
_DAY_US: Final = 86_400_000_000
# The columns that matching reads; an effect has many more.
_COLUMNS: Final = (
    "project_id",
    "agent_id",
    "tool",
    "repository__name",
    "moved_refs",
    "environment",
    "external_reference",
    "attempt_count",
    "state",
    "outcome",
    "plan_position",
)
_ATTEMPT_COLUMNS: Final = (
    "effect_id",
    "number",
    "lane",
    "external_reference",
    "received_us",
    "heard_us",
    "dispatched_at_us",
    "acknowledged_at_us",
)


def load_effect_candidates(
    event: CodeHostEvent, facts: EventFacts, excluded: Collection[UUID]
) -> list[EffectFacts]:
    """Return the effects near an event as matching sees them.

    Read are the newest effects of the repository and those with one of the event's references, and
    of the newest MAX_NEWEST those that name no repository or have no answer: at most MAX_PER_QUERY
    of each. `excluded`: effects that a person said it is not.
    """
    ids = {effect for effect in _find_effects(event, facts) if effect not in excluded}
    rows = list(Effect.objects.filter(id__in=ids).select_related("repository").only(*_COLUMNS))
    attempts = _load_attempts(rows)
    near = [row for row in rows if not row.attempt_count or _is_near(event, attempts[row.id])]
    plans = verdict_inputs.load_plan_bodies(near)
    bound = _load_bound(event, [row.id for row in near])
    return [
        _read_effect(row, plans.get(row.id, {}), attempts.get(row.id, []), bound.get(row.id, ()))
        for row in near
    ]


def _find_effects(event: CodeHostEvent, facts: EventFacts) -> Iterable[UUID]:
    """Yield the ids of effects near the event; most are found more than once."""
    ofs = Effect.objects.filter(project=event.project_id, imported=False)
    since = event.occurred_us - WINDOW_BEFORE_US - 30 * _DAY_US
    recent = ofs.filter(received_us__gte=since).order_by("-opened_position")
    newest = recent.filter(opened_position__gt=_find_floor(event.project_id))
    repositories = _find_repositories(event, facts)
    queries: list[QuerySet[Effect]] = [
        newest.filter(repository__isnull=True),
        newest.filter(Q(state="dispatched") | Q(state="failed")),
    ]
    if repositories:
        queries.append(recent.filter(repository__in=repositories))
    references = [name for name in (*facts.references, facts.sha) if name]
    if references:
        queries.append(recent.filter(HAS_REFERENCE, external_reference__in=references))
    for query in queries:
        yield from query.values_list("id", flat=True)[:MAX_PER_QUERY]


def _find_floor(project: UUID) -> int:
    """Return the position below which effects are found by repository and reference only."""
    positions = Effect.objects.filter(project=project).order_by("-opened_position")
    listed = positions.values_list("opened_position", flat=True)
    return next(iter(listed[MAX_NEWEST : MAX_NEWEST + 1]), 0)


def _find_repositories(event: CodeHostEvent, facts: EventFacts) -> list[UUID]:
    """Return the project's repositories that are the event's, by name or address."""
    if not facts.repository:
        return []
    names = Repository.objects.filter(
        project=event.project_id, name__icontains=facts.repository.rpartition("/")[2]
    )
    return [
        identity
        for identity, name in names.values_list("id", "name")[:MAX_REPOSITORIES]
        if split_repository(name)[1] == facts.repository
    ]


def _load_attempts(effects: Sequence[Effect]) -> dict[UUID, list[Attempt]]:
    attempts: dict[UUID, list[Attempt]] = {effect.id: [] for effect in effects}
    tried = [effect.id for effect in effects if effect.attempt_count]
    rows = Attempt.objects.filter(effect__in=tried).only(*_ATTEMPT_COLUMNS).order_by("-number")
    for row in rows[: 10 * MAX_PER_QUERY]:
        attempts[row.effect_id].append(row)
    return attempts


def _start_of(attempt: Attempt) -> int | None:
    """Return when an attempt was dispatched; a report's own time counts before its arrival."""
    if attempt.lane == "evidence" and attempt.dispatched_at_us is not None:
        return attempt.dispatched_at_us
    for moment in (attempt.received_us, attempt.acknowledged_at_us, attempt.heard_us):
        if moment is not None:
            return moment
    return None


def _is_near(event: CodeHostEvent, attempts: Sequence[Attempt]) -> bool:
    low, high = event.occurred_us - WINDOW_BEFORE_US, event.occurred_us + WINDOW_AFTER_US
    starts = [_start_of(attempt) for attempt in attempts]
    return any(start is not None and low <= start <= high for start in starts)


def _load_bound(
    event: CodeHostEvent, effects: Sequence[UUID]
) -> dict[UUID, set[tuple[str, str, str]]]:
    """Return what other events are matched with each effect."""
    matches = EventMatch.objects.filter(
        effect__in=effects, status__in=("confirmed", "evidence")
    ).exclude(event=event.pk)
    bound: dict[UUID, set[tuple[str, str, str]]] = {}
    for match in matches.select_related("event")[: 5 * MAX_PER_QUERY]:
        other = match.event
        facts = EventFacts.from_dict(orjson.loads(other.facts))
        bound.setdefault(match.effect_id, set()).add((other.kind, other.action, facts.subject))
    return bound


def _read_effect(
    effect: Effect,
    plan: dict[str, Any],
    attempts: Sequence[Attempt],
    bound: Iterable[tuple[str, str, str]],
) -> EffectFacts:
    sent = plan.get("target")
    target = {
        **(sent if isinstance(sent, dict) else {}),
        "repository": effect.repository.name if effect.repository is not None else "",
        "environment": effect.environment,
    }
    references = [
        effect.external_reference,
        *(attempt.external_reference for attempt in attempts),
    ]
    starts = [start for attempt in attempts if (start := _start_of(attempt)) is not None]
    declared = cache.load_tool(effect.project_id, effect.tool)
    return EffectFacts(
        id=effect.id,
        agent=effect.agent_id,
        calls=read_calls(effect.tool, plan, target=target, moved_refs=effect.moved_refs),
        references=tuple(dict.fromkeys(filter(None, references))),
        started_us=tuple(starts),
        is_read_only=declared is not cache.UNDECLARED and declared.tool_class == "read_only",
        in_doubt=verdict_inputs.is_in_doubt(effect),
        bound=frozenset(bound),
    )
