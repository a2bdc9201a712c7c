"""Data of effect, gate and session pages as of a cut. All rows are of the current project."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db.models import Case, CharField, Count, Q, Value, When

from accounts.models import Project
from approvals.models import Gate, Vote
from display import display_state, effect_headline, keyset_pagination
from display.display_state import derive_shown_state
from display.effect_headline import Headline
from display.keyset_pagination import Window
from investigation.history import past_effects as history_effects
from investigation.history import past_gate_states, past_sessions
from investigation.history.moment import JournalCut
from journal import summaries as journal_summaries
from journal.models import Body, Entry, Erasure
from ledger import resolutions, same_calls
from ledger import violations as ledger_violations
from ledger.models import Attempt, Effect
from ledger.resolutions import Resolution
from pages.effects import data, lifecycle
from pages.effects.data import EffectEntryPage, Exchange, ReviewComparison
from pages.effects.lifecycle import Stage
from sessions.models import Artifact, Session

SESSION_PAGE_EFFECTS: Final = 100  # Effects per page of a session.
MAX_REBUILT_EFFECTS: Final = 5_000  # Most effects of a session that are rebuilt for its counts.
MAX_RELATED_ROWS: Final = 20


class EffectRowThen(NamedTuple):
    """An effect in a table: its state then, its call, and how it is related. Agent text."""

    effect: Any
    state: str
    gist: str | None = None
    how: str = ""


@dataclass(slots=True)
class EffectPageThen:
    """Data of an effect's page."""

    effect: Effect
    state: str
    headline: Headline
    life: list[Stage]
    attempts: list[Attempt]
    attempts_in_all: int
    compared: ReviewComparison
    exchange: Exchange
    facts: EffectEntryPage
    gates: list[Gate]
    violations: list[str]
    resolutions_until: list[Resolution]
    related: list[EffectRowThen]
    artifacts: list[Artifact]
    lost: frozenset[str]
    erased_since: set[int] = field(default_factory=set)


def load_past_effect_page(
    project: Project, live: Effect, cut: JournalCut, window: Window
) -> EffectPageThen | None:
    """Return the data of the page of `live`; None if it did not exist yet."""
    past = history_effects.rebuild_effects_with_attempts(project.id, [live.id], cut).get(live.id)
    if past is None:
        return None
    row, newest_attempts = past.effect, _select_newest_attempts(past.attempts)
    past_gates = past_gate_states.rebuild_gates_of_effect(project.id, row.id, cut)
    violations = _load_violations(row.id, cut)
    exchange = data.load_exchange(row, newest_attempts)
    positions = [
        position
        for position in (row.plan_position, exchange.answer_position)
        if position is not None
    ]
    at = min(cut.position, window.before - 1) if window.before is not None else cut.position
    facts = data.load_entry_page(row, None, at)
    facts.at, facts.newer = None, facts.newer if window.before is not None else None
    return EffectPageThen(
        effect=row,
        state=derive_shown_state(row, cut.at_us),
        headline=effect_headline.effect_headline(
            row, newest_attempts, len(past.attempts), cut.at_us
        ),
        life=lifecycle.life_stages(row, newest_attempts, cut.at_us),
        attempts=newest_attempts,
        attempts_in_all=len(past.attempts),
        compared=data.compare_with_review(row, newest_attempts, past_gates, violations),
        exchange=exchange,
        facts=facts,
        gates=past_gates,
        violations=violations,
        resolutions_until=[
            row for row in resolutions.load_resolutions(row) if row.position <= cut.position
        ],
        related=_load_related(project.id, row, cut),
        artifacts=data.load_effect_artifacts(row, cut.position),
        lost=past.lost,
        erased_since=find_erased_since(project.id, positions, cut),
    )


def _select_newest_attempts(tried: Sequence[Attempt]) -> list[Attempt]:
    """Return the newest attempts and the one with the valid answer, in order.

    See load_attempts_for_page in pages/effects/data.py.
    """
    newest = list(tried[-data.MAX_ATTEMPTS :])
    if not any(attempt.acknowledged_mark for attempt in newest):
        newest = [attempt for attempt in tried[: -data.MAX_ATTEMPTS] if attempt.acknowledged_mark][
            -1:
        ] + newest
    return newest


def _load_violations(effect: UUID, cut: JournalCut) -> list[str]:
    """Return the violations detected by then, in words."""
    entries = Entry.objects.filter(effect=effect, kind="integrity.violation", lane="system")
    names = (
        entries.filter(position__lte=cut.position)
        .order_by("position")
        .values_list("facts", flat=True)
    )
    codes = [orjson.loads(facts)["violation"] for facts in names]
    return [ledger_violations.VIOLATION_LABELS.get(name, name) for name in codes]


def _load_related(project: UUID, source: Effect, cut: JournalCut) -> list[EffectRowThen]:
    undoing, children = data.load_related_effects(source, cut.position)
    relation = dict.fromkeys((row.id for row in children), "child of this effect")
    relation |= dict.fromkeys((row.id for row in undoing), "compensates this effect")
    relation |= (
        {source.compensates_id: "compensated by this effect"}
        if source.compensates_id is not None
        else {}
    )
    relation |= (
        {source.parent_effect_id: "parent of this effect"}
        if source.parent_effect_id is not None
        else {}
    )
    links = {
        link.other.id: link
        for link in same_calls.load_links_of_effects([source.id], cut.position).get(source.id, [])
    }
    relation |= {other_id: _SAME_CALL[link.earlier] for other_id, link in links.items()}
    rebuilt = history_effects.rebuild_effects(project, relation, cut).values()
    return [
        EffectRowThen(row, derive_shown_state(row, cut.at_us), how=relation[row.id])
        for row in sorted(rebuilt, key=lambda row: row.opened_position)[:MAX_RELATED_ROWS]
        if row.id in links or _is_related(source, row)
    ]


_SAME_CALL: Final = {
    True: "same call in another session; its outcome was unknown when this effect started",
    False: "same call in another session; it started while this effect’s outcome was unknown",
}


def _is_related(source: Effect, row: Effect) -> bool:
    """Return True if the plans of then refer to each other."""
    return source.id in (row.compensates_id, row.parent_effect_id) or row.id in (
        source.compensates_id,
        source.parent_effect_id,
    )


def find_erased_since(project: UUID, positions: Iterable[int], cut: JournalCut) -> set[int]:
    """Return the `positions` whose bodies existed at the cut and have been erased since."""
    erased = Erasure.objects.filter(
        project=project, entry_id__in=list(positions), erased_at_us__gt=cut.at_us
    )
    return set(erased.values_list("entry_id", flat=True))


@dataclass(slots=True)
class VoteWithReason:
    """A vote with its reason, which is None if it was erased."""

    vote: Vote
    reason: str | None


@dataclass(slots=True)
class GatePageThen:
    """Data of a gate's page. `yes` is the number of approvals."""

    gate: Gate
    effect: Effect
    state: str
    votes: list[VoteWithReason]
    yes: int
    exchange: Exchange
    erased_since: set[int]


def load_past_gate_page(
    project: Project, live: Gate, cut: JournalCut, _window: Window
) -> GatePageThen | None:
    """Return the data of the page of `live`, or None if the gate did not exist yet."""
    past = past_gate_states.rebuild_gates_with_votes(project.id, [live.id], cut).get(live.id)
    effect = (
        history_effects.rebuild_effects_with_attempts(project.id, [past.gate.effect_id], cut).get(
            past.gate.effect_id
        )
        if past
        else None
    )
    if past is None or effect is None:
        return None
    positions = [past.gate.plan_position, *(vote.position for vote in past.votes)]
    texts = dict(Body.objects.filter(entry__in=positions).values_list("entry_id", "text"))
    past_effect = effect.effect
    past_effect.plan_position = past.gate.plan_position
    reasons = {
        position: journal_summaries.parse_body(text).get("reason", "")
        for position, text in texts.items()
    }
    return GatePageThen(
        gate=past.gate,
        effect=past_effect,
        state=derive_shown_state(past_effect, cut.at_us),
        votes=[VoteWithReason(vote, reasons.get(vote.position)) for vote in past.votes],
        yes=sum(vote.answer == "approve" for vote in past.votes),
        exchange=data.load_exchange(past_effect, []),
        erased_since=find_erased_since(project.id, positions, cut),
    )


@dataclass(slots=True)
class SessionPageThen:
    """Data of a session's page, with a page of its effects, newest first."""

    session: Session
    lease: past_sessions.PastLease | None
    lost: set[str]
    rows: list[EffectRowThen]
    older: int | None
    newer: int | None
    by_state: list[tuple[str, int]]  # Non-zero (label, count) pairs.
    effects: int
    violations: int
    children: list[Session]
    artifacts: list[Artifact]


def load_past_session_page(
    project: Project, live: Session, cut: JournalCut, window: Window
) -> SessionPageThen | None:
    """Return the data of the page of `live`, or None if the session did not exist yet."""
    past = past_sessions.rebuild_sessions_with_leases(project.id, [live.id], cut).get(live.id)
    if past is None:
        return None
    opened = Effect.objects.filter(session=live, opened_position__lte=cut.position)
    page = keyset_pagination.load_keyset_page(
        opened.only("id", "opened_position"), SESSION_PAGE_EFFECTS, window
    )
    changed_ids = find_changed_effects(live.id, cut)
    countable = len(changed_ids) <= MAX_REBUILT_EFFECTS
    rebuilt = history_effects.rebuild_effects(
        project.id, {row.id for row in page.rows} | (changed_ids if countable else set()), cut
    )
    shown_rows = [rebuilt[row.id] for row in page.rows if row.id in rebuilt]
    summaries = _load_summaries(
        [row.plan_position for row in shown_rows if row.plan_position is not None]
    )
    changed = [row for key, row in rebuilt.items() if key in changed_ids]
    counts, violations = _count_states(opened, changed, changed_ids, cut) if countable else ({}, 0)
    child_sessions = Session.objects.filter(
        parent=live, opened_position__lte=cut.position
    ).order_by("-opened_position")
    children = past_sessions.rebuild_sessions(
        project.id, child_sessions.values_list("id", flat=True)[:MAX_RELATED_ROWS], cut
    ).values()
    past_artifacts = Artifact.objects.filter(session=live, opened_position__lte=cut.position)
    return SessionPageThen(
        session=past.session,
        lease=past.lease,
        lost=past.lost,
        rows=[
            EffectRowThen(row, derive_shown_state(row, cut.at_us), summaries.get(row.plan_position))
            for row in shown_rows
        ],
        older=page.older,
        newer=page.newer,
        by_state=[
            (word, counts[word]) for word in display_state.STATES.values() if counts.get(word)
        ],
        effects=sum(counts.values()) if countable else opened.count(),
        violations=violations,
        children=sorted(children, key=lambda row: row.opened_position, reverse=True),
        artifacts=list(past_artifacts.order_by("-opened_position")[:MAX_RELATED_ROWS]),
    )


def find_changed_effects(session: UUID, cut: JournalCut) -> set[UUID]:
    """Return the effects of a session that changed since the cut."""
    since = Entry.objects.filter(session=session, position__gt=cut.position, effect__isnull=False)
    changed = set(since.order_by().values_list("effect", flat=True).distinct())
    compensations = Effect.objects.filter(session=session, compensates__isnull=False).values_list(
        "id", "compensates"
    )
    targets = {effect: target for effect, target in compensations if effect in changed}
    return {effect_id for effect_id in (*changed, *targets.values()) if effect_id is not None}


def _count_states(
    opened: Any, changed: Iterable[Effect], changed_ids: set[UUID], cut: JournalCut
) -> tuple[dict[str, int], int]:
    """Return the number of effects in each shown state, and of those with violations."""
    conditions_by_state = {
        label: display_state.shown_state_conditions(key, cut.at_us)
        for key, label in display_state.STATES.items()
    }
    whens = [
        When(condition, then=Value(label))
        for label, conditions in conditions_by_state.items()
        for condition in conditions
    ]
    groups = (
        opened.exclude(id__in=changed_ids)
        .annotate(shown=Case(*whens, output_field=CharField()))
        .values("shown")
        .annotate(number=Count("id"), violating=Count("id", filter=Q(violates=True)))
        .order_by()
    )
    counts = {group["shown"]: group["number"] for group in groups}
    violations = sum(group["violating"] for group in groups)
    for row in changed:
        label = derive_shown_state(row, cut.at_us)
        counts[label] = counts.get(label, 0) + 1
        violations += row.violates
    return counts, violations


def _load_summaries(positions: list[int]) -> dict[int | None, str | None]:
    """Return one-line summaries of calls by the position of the plan; erased ones are absent."""
    texts = Body.objects.filter(entry__in=positions).values_list("entry_id", "text")
    return {
        position: journal_summaries.summarize_arguments(journal_summaries.extract_arguments(text))
        for position, text in texts
    }
